"""Where the control plane of this machine is, and a token for it, so that commands work at once.

`pointsman up` writes the file into its state folder, readable for its owner alone: whoever may read it may
also write to the database beside it. The token is sent to the address in the same file and nowhere else.
"""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from dataplane.files import OWNER_ONLY, write_for_owner

VARIABLE: Final = "POINTSMAN_PROFILE"
NAME: Final = "profile.json"
DEFAULT: Final = Path(__file__).resolve().parent.parent / ".state" / NAME


class Profile(NamedTuple):
    """A control plane and who asks it."""

    url: str
    token: str


class UnusableError(Exception):
    """There is a file, and it must not or cannot be used; the text says why."""


def read() -> Profile | None:
    """The profile of this machine, None when there is none. `UnusableError`."""
    given = os.environ.get(VARIABLE)
    return read_file(Path(given) if given else DEFAULT)


def read_file(path: Path) -> Profile | None:
    """The profile in a file, None when there is no file. `UnusableError`."""
    try:
        with path.open() as file:
            kept = os.fstat(file.fileno())
            if kept.st_mode & ~OWNER_ONLY & 0o777 or kept.st_uid not in {os.geteuid(), 0}:
                raise UnusableError(f"{path} holds a token and others may read it; chmod 600 {path}")
            found = json.load(file)
        return Profile(str(found["url"]), str(found["token"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UnusableError(f"{path} is no profile; delete it, 'pointsman up' writes another") from None


def write(path: Path, profile: Profile) -> None:
    """Replace the file in one step."""
    write_for_owner(path, json.dumps(profile._asdict()))
