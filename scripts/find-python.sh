# Sourced by the scripts beside it: sets PYTHON to an interpreter that can build the environment.
# $PYTHON, when set, is tried first; then the usual names. Ends the script with a message when none will do.

for PYTHON in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11 python3.14 python; do
    if "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        return 0
    fi
done
echo "$(basename "$0"): Python 3.11 or newer is needed, and no python3 on the PATH is that new." >&2
echo "Install one, or name it: PYTHON=/path/to/python3.12 $0" >&2
exit 1
