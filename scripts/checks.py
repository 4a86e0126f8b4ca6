"""Every check of the repository, one after another: `checks.py`, or only pytest: `checks.py -- ARGS`.

All checks run even when an early one fails, so that one run shows everything there is to mend; the exit code
is 0 only when all passed. Caches are the only files left behind, and they are ignored by git.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
PYTEST = [str(BIN / "pytest")]

CHECKS: dict[str, list[str]] = {
    "lint": [str(BIN / "ruff"), "check", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "types": [str(BIN / "mypy")],
    "import contracts": [str(BIN / "lint-imports")],
    "tests": [*PYTEST, "-n", "2", "-q"],
    "tests of the control plane on PostgreSQL": [
        sys.executable,
        str(Path(__file__).with_name("postgres.py")),
        *PYTEST,
        *("-n", "2", "-q", "-m", "not integration", "tests/controlplane"),
    ],
}


def passes(name: str, command: Sequence[str]) -> bool:
    """Run one check with its output on the screen and say how it went."""
    print(f"== {name}", flush=True)
    start = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    print(
        f"== {name}: {'passed' if code == 0 else f'FAILED ({code})'} in {time.monotonic() - start:.1f} s",
        flush=True,
    )
    return code == 0


def main() -> int:
    """Run all checks, or pytest alone with the arguments after `--`."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--"]:
        return subprocess.run([*PYTEST, *arguments[1:]], check=False).returncode
    if arguments:
        sys.stderr.write(
            "usage: scripts/test            every check\n       scripts/test -- ARGS    only pytest\n"
        )
        return 2
    failed = [name for name, command in CHECKS.items() if not passes(name, command)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
