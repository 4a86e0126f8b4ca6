"""Every check of the repository: `checks.py`, or only pytest: `checks.py -- ARGS`.

Two lanes run side by side: all tests, on two processes, and what needs one process only: static checks, then
the tests of the control plane on PostgreSQL. Tests that compare durations (marked ``calm``) follow when all
else is done. All checks run even when an early one fails, so that one run shows everything there is to mend;
the exit code is 0 only when all passed. Caches are the only files left behind, and they are ignored by git.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

BIN = Path(sys.executable).parent
PYTEST = (str(BIN / "pytest"), "-q")
POSTGRES = (sys.executable, str(Path(__file__).with_name("postgres.py")))


class Check(NamedTuple):
    """A command and what it is for."""

    name: str
    command: Sequence[str]
    variables: tuple[tuple[str, str], ...] = ()
    """Added to the environment."""


TESTS = Check("tests", (*PYTEST, "-n", "2", "--dist", "worksteal", "-m", "not calm"))
ON_ONE_PROCESS = (
    Check("lint", (str(BIN / "ruff"), "check", ".")),
    Check("format", (str(BIN / "ruff"), "format", "--check", ".")),
    Check("import contracts", (str(BIN / "lint-imports"),)),
    Check("types", (str(BIN / "mypy"),)),
    Check(
        "tests of the control plane on PostgreSQL",
        (*POSTGRES, *PYTEST, "-m", "not integration", "tests/controlplane"),
        (("POINTSMAN_TEST_API_REQUESTS", "2"),),  # what differs there is how values are kept
    ),
)
CALM = Check("tests that compare durations", (*PYTEST, "-m", "calm", "tests/integration"))

_screen = threading.Lock()


def environment(check: Check) -> dict[str, str]:
    """That of this process, in which compiled modules are kept: tests start hundreds of processes."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | dict(check.variables)


def passes(check: Check, *, at_once: bool) -> bool:
    """Run one check and say how it went: with its output on the screen as it comes, or whole at its end."""
    start = time.monotonic()
    if at_once:
        print(f"== {check.name}", flush=True)
    done = subprocess.run(
        check.command,
        check=False,
        stdout=None if at_once else subprocess.PIPE,
        stderr=None if at_once else subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(check),
    )
    how = "passed" if done.returncode == 0 else f"FAILED ({done.returncode})"
    with _screen:
        if not at_once:
            print(f"\n== {check.name}\n{done.stdout}", end="")
        print(f"== {check.name}: {how} in {time.monotonic() - start:.1f} s", flush=True)
    return done.returncode == 0


def failing() -> list[str]:
    """Run all checks; the names of those that failed."""
    with ThreadPoolExecutor(1) as lane:
        beside = [lane.submit(passes, check, at_once=False) for check in ON_ONE_PROCESS]
        results = {TESTS.name: passes(TESTS, at_once=True)}
        results |= {check.name: found.result() for check, found in zip(ON_ONE_PROCESS, beside, strict=True)}
    results[CALM.name] = passes(CALM, at_once=True)
    return [name for name, has_passed in results.items() if not has_passed]


def main() -> int:
    """Run all checks, or pytest alone with the arguments after `--`."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--"]:
        alone = Check("pytest", (PYTEST[0], *arguments[1:]))
        return subprocess.run(alone.command, check=False, env=environment(alone)).returncode
    if arguments:
        sys.stderr.write(
            "usage: scripts/test            every check\n       scripts/test -- ARGS    only pytest\n"
        )
        return 2
    failed = failing()
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
