"""Slows down whoever guesses passwords: so many failures, and further logins wait.

A login is counted as failed before its password is looked at, and is forgotten when the password is right: of
logins that come at once no more get through than of those that come one after another. Those that wait are
not counted, so every wait ends, at most ``WINDOW`` after the failures that began it. Failures are rows of the
database, so that all web processes count the same ones; a name is counted whether or not it is anybody's.

    a name from one source    strictly: whoever guesses there is stopped soon
    a source                  loosely: many people may share an address
    a name                    loosely, for guesses that come from many addresses

A source is an address, or a browser in which this person has logged in before. Such a browser counts for
itself alone, so that no stranger's guesses keep its owner out, wherever they come from.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.core import signing
from django.db.models import Count, Q
from django.utils import timezone

from controlplane.core.models import MAX_NAME, LoginFailure

log = logging.getLogger(__name__)

WINDOW: Final = timedelta(minutes=15)
MAX_OF_NAME_AND_SOURCE: Final = 10
MAX_OF_SOURCE: Final = 50
MAX_OF_NAME: Final = 100
MAX_ROWS: Final = 100_000
"""Of more failures the oldest are forgotten."""

KNOWN_FOR: Final = timedelta(days=180)
"""How long a browser is remembered after its last login."""
_SALT: Final = "controlplane.core.throttle"
_BROWSER: Final = "browser:"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a login comes from."""

    name: str
    is_known: bool = False
    """Whether it is a browser in which the same person has logged in before."""


def source_of(username: str, address: str, mark: str) -> Source:
    """The source of somebody's login from an address, with the mark that the browser has kept."""
    try:
        owner, browser = signing.loads(mark, salt=_SALT, max_age=KNOWN_FOR)
    except (signing.BadSignature, TypeError, ValueError):
        return Source(address)
    return Source(f"{_BROWSER}{browser}", is_known=True) if owner == _folded(username) else Source(address)


def mark_of(username: str, source: Source) -> str:
    """What the browser of a successful login keeps, to be known the next time."""
    browser = source.name.removeprefix(_BROWSER) if source.is_known else secrets.token_urlsafe(16)
    return signing.dumps([_folded(username), browser], salt=_SALT)


def begin(username: str, source: Source) -> bool:
    """Count a login as failed until it succeeds; False when it has to wait, and is not counted."""
    if _is_held(username, source, ours=0):
        return False
    row = LoginFailure.objects.create(username=_folded(username), source=source.name)
    # Whoever counts after writing sees all that were written before: of several at once some wait that need
    # not, and none gets through that must not.
    if _is_held(username, source, ours=1):
        row.delete()
        return False
    old = Q(at__lt=timezone.now() - WINDOW) | Q(pk__lte=row.pk - MAX_ROWS)
    LoginFailure.objects.filter(old).delete()
    return True


def succeeded(username: str, source: Source) -> None:
    """Whoever knows the password starts anew where he is."""
    LoginFailure.objects.filter(username=_folded(username), source=source.name).delete()


def release(username: str) -> int:
    """Forget all failures of a name; returns how many. Its logins wait only where an address has to."""
    count, _ = LoginFailure.objects.filter(username=_folded(username)).delete()
    return count


def _is_held(username: str, source: Source, ours: int) -> bool:
    """Whether a login waits; ``ours`` of the rows are its own."""
    name, here = Q(username=_folded(username)), Q(source=source.name)
    recent = LoginFailure.objects.filter(name | here, at__gte=timezone.now() - WINDOW)
    found = recent.aggregate(
        both=Count("pk", filter=name & here), here=Count("pk", filter=here), name=Count("pk", filter=name)
    )
    reached = [found["both"] - ours >= MAX_OF_NAME_AND_SOURCE]
    if not source.is_known:
        reached += [found["here"] - ours >= MAX_OF_SOURCE, found["name"] - ours >= MAX_OF_NAME]
    if any(reached):
        log.warning("logins as %.100r from %s wait: too many have failed", username, source.name)
    return any(reached)


def _folded(username: str) -> str:
    return username.casefold()[:MAX_NAME]
