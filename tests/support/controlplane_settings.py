"""The control plane's settings for tests: a database in memory, and files in a folder that goes away.

Passwords are hashed without the work that makes guessing slow; processes that tests start do that work.
"""

import atexit
import os
import shutil
import tempfile

_FOLDER = tempfile.mkdtemp(prefix="pointsman-test-")
_OWNER = os.getpid()


def _remove() -> None:
    if os.getpid() == _OWNER:  # and not a fork that a test has made
        shutil.rmtree(_FOLDER, ignore_errors=True)


atexit.register(_remove)
os.environ["POINTSMAN_STATE"] = _FOLDER
os.environ.setdefault("DATABASE_URL", "sqlite://:memory:")

from controlplane.settings import *  # noqa: E402, F403 - the environment comes first

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
