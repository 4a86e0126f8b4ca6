"""A PostgreSQL that lives as long as one command: `postgres.py COMMAND...` runs it with DATABASE_URL set.

It listens on a Unix socket in a temporary folder only, and is stopped and removed however the command ends.
PostgreSQL refuses to run as root, so that root runs it as `nobody`. Where there is no PostgreSQL on the
machine (PATH, or where Debian puts it) the command is not run, and that is said; the exit code is 0 then.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEBIAN = Path("/usr/lib/postgresql")
# Nobody needs this database tomorrow: what makes it safe against power failures is off.
OPTIONS = "-c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
START_SECONDS = 60


def binaries() -> Path | None:
    """The folder of the newest PostgreSQL, None when there is none."""
    folders = sorted(DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        folders.insert(0, Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


def unprivileged() -> dict[str, Any]:
    """What `subprocess` needs to be told so that a program does not run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URL of a database that is there until the block ends."""
    identity = unprivileged()
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:  # a socket's path is short
        home = Path(name)
        if identity:
            os.chown(home, identity["user"], identity["group"])

        def run(*command: str) -> None:
            done = subprocess.run(
                [str(folder / command[0]), *command[1:]],
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                **identity,
            )
            if done.returncode:
                log = home / "log"
                said = done.stdout.decode(errors="replace")
                raise SystemExit(f"postgres: {command[0]}: {said}{log.read_text() if log.exists() else ''}")

        data = str(home / "data")
        run("initdb", "-D", data, "-U", "pointsman", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        run(
            "pg_ctl", "start", "-w", "-t", str(START_SECONDS), "-D", data, "-l", str(home / "log"),
            "-o", f"{OPTIONS} -k {home}",
        )  # fmt: skip
        try:
            yield f"postgres://pointsman@{urllib.parse.quote(name, safe='')}/postgres"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", data)


def main(command: Sequence[str]) -> int:
    """Run the command beside a database."""
    folder = binaries()
    if folder is None:
        print(
            "skipped: there is no PostgreSQL on this machine; 'apt-get install postgresql' brings one",
            flush=True,
        )
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the database ends too
    with running(folder) as url:
        print(f"PostgreSQL of {folder}", flush=True)
        return subprocess.run(command, env={**os.environ, "DATABASE_URL": url}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
