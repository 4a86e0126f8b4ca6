"""Filters of the console's templates."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django import template
from django.utils import timezone
from django.utils.timesince import timesince

register = template.Library()

RECENT_S: Final = 60


@register.filter
def ago(at: datetime) -> str:
    """How long ago something was, in its largest unit: ``12 seconds ago``, ``3 days ago``."""
    seconds = int((timezone.now() - at).total_seconds())
    if seconds < 2:
        return "just now"
    if seconds < RECENT_S:
        return f"{seconds} seconds ago"
    return f"{timesince(at, depth=1)} ago"


@register.filter
def grouped(number: object) -> object:
    """A whole number with its thousands told apart; anything else as it is."""
    return f"{number:,}" if isinstance(number, int) else number
