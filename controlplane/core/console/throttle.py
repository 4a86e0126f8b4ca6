"""Slows down whoever guesses passwords: so many failures of a name or an address, and logins wait.

Failures are rows of the database, so that every web process counts the same ones; what is older than the
window is removed as new ones come. A name is counted whether or not it is anybody's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.utils import timezone

from controlplane.core.models import MAX_NAME, LoginFailure

WINDOW: Final = timedelta(minutes=15)
MAX_OF_NAME: Final = 10
MAX_OF_ADDRESS: Final = 50
"""Many people may share an address."""
MAX_ROWS: Final = 100_000


def is_held(username: str, address: str) -> bool:
    """Whether logins of this name, or from this address, wait."""
    since = timezone.now() - WINDOW
    recent = LoginFailure.objects.filter(at__gte=since)
    if recent.filter(address=address).count() >= MAX_OF_ADDRESS:
        return True
    return recent.filter(username=username[:MAX_NAME].casefold()).count() >= MAX_OF_NAME


def failed(username: str, address: str) -> None:
    """Count a failure."""
    LoginFailure.objects.filter(at__lt=timezone.now() - WINDOW).delete()
    if LoginFailure.objects.count() < MAX_ROWS:
        LoginFailure.objects.create(username=username[:MAX_NAME].casefold(), address=address)


def succeeded(username: str) -> None:
    """Whoever knows the password starts anew."""
    LoginFailure.objects.filter(username=username[:MAX_NAME].casefold()).delete()
