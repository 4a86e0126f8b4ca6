"""How one of our own programs starts another."""

import sys
from typing import Final

POINTSMAN: Final = (sys.executable, "-P", "-m", "cli.main")
"""This very installation; -P keeps modules in the working directory out of it."""
