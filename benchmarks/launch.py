"""Turns into the given program after asking the kernel to kill it when the process that wanted it is gone.

Run as a script, with nothing but the standard library: `launch.py PARENT PROGRAM ARGUMENT...`. A benchmark
that is killed leaves no servers behind. This is a program of its own because code that runs between fork and
exec is not safe in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Tie this process to `PARENT` and become `PROGRAM`; returns only when that cannot be."""
    parent, program = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call took effect
        return 1
    try:
        os.execvp(program, sys.argv[2:])  # noqa: S606 - an argument list of the benchmark's own, no shell
    except OSError as error:
        sys.stderr.write(f"{program}: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main())
