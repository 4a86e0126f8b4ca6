"""Create or refresh the virtual environment of this checkout: `environment.py EXTRA`.

Runs on whatever Python 3.11+ the machine has, so it uses the standard library alone. The project is installed
in editable mode, hence only a changed `pyproject.toml` calls for a new install: a stamp in the environment
holds its digest, and a second run returns at once. A lock keeps two scripts started together from installing
into the same environment. Everything is said on stderr: stdout belongs to the program that is started next.
"""

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"

CONTAINS = {"local": ("local", "dev"), "dev": ("dev",)}
"""For each extra, the extras whose installation covers it."""


def digest() -> str:
    """Return what an installation depends on: the project file and the interpreter's version."""
    if not PYTHON.exists():
        return "none"
    version = subprocess.run([PYTHON, "-VV"], check=False, capture_output=True).stdout
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + version).hexdigest()


def stamp(extra: str) -> Path:
    """Return the file that records the digest `extra` was installed for."""
    return ENVIRONMENT / f"installed-{extra}"


def is_installed(extra: str) -> bool:
    """Tell whether the environment works and holds `extra` of the present project file."""
    current = digest()
    return any(stamp(each).exists() and stamp(each).read_text() == current for each in CONTAINS[extra])


def is_usable() -> bool:
    """Tell whether the environment's interpreter runs, is new enough and has pip."""
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    return (
        PYTHON.exists()
        and subprocess.run([PYTHON, "-c", probe], check=False, capture_output=True).returncode == 0
    )


def create() -> None:
    """Make the environment anew; a broken one (its Python was removed or upgraded) is replaced."""
    say(f"creating {ENVIRONMENT.name} with Python {sys.version.split()[0]}")
    try:
        venv.EnvBuilder(with_pip=True, clear=True, symlinks=True).create(ENVIRONMENT)
    except subprocess.CalledProcessError:
        raise SystemExit(
            "environment: this Python cannot create virtual environments with pip.\n"
            "Install its venv package (Debian, Ubuntu: apt install python3-venv) or use another PYTHON."
        ) from None


def install(extra: str) -> None:
    """Install the checkout with `extra` from the index this machine's pip is configured for."""
    say(f"installing pointsman[{extra}] (once; again only when pyproject.toml changes)")
    command = [
        str(PYTHON),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-e",
        f"{ROOT}[{extra}]",
    ]
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise SystemExit(
            "environment: the installation failed; the lines above say why. Without a network, point pip at "
            "a local folder of wheels with PIP_FIND_LINKS."
        )
    stamp(extra).write_text(digest())


def say(message: str) -> None:
    """Report a step on stderr."""
    sys.stderr.write(f"environment: {message}\n")


def main() -> None:
    """Bring the environment up to date for the extra named on the command line."""
    if len(sys.argv) != 2 or sys.argv[1] not in CONTAINS:
        raise SystemExit(f"usage: environment.py {{{','.join(CONTAINS)}}}")
    extra = sys.argv[1]
    if is_installed(extra):
        return
    with (ROOT / "pyproject.toml").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_installed(extra):
            return
        if not is_usable():
            create()
        install(extra)


if __name__ == "__main__":
    main()
