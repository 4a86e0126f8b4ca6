"""What filters that go by a field of the body have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ServedModel


def asked_for(request: RequestMessage, field: str) -> str | None:
    """The text in a field, empty when it is absent or null; None for what is no text."""
    raw = request.members.get(field)
    if raw is None:
        return ""
    value = msgspec.json.decode(raw)
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else None


def matching(
    request: RequestMessage,
    candidates: Sequence[ServedModel],
    field: str,
    of: Callable[[ServedModel], str | None],
) -> Sequence[ServedModel]:
    """Candidates of which ``of`` is what the field says: all without a field, none for what is no text."""
    wanted = asked_for(request, field)
    if wanted == "":
        return candidates
    return () if wanted is None else [model for model in candidates if of(model) == wanted]
