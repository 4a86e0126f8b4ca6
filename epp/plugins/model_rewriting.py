"""Replace the model in a JSON request, and put the requested one back into the response."""

from __future__ import annotations

from collections.abc import Sequence

from dataplane.errors import BadRequestError
from dataplane.extproc.events import BodyTransform
from dataplane.payload.json_member import set_member
from dataplane.payload.rewriter import EventStreamRewriter, JsonRewriter
from epp.interfaces.request import ParsedBody


def with_model(body: bytes, parsed: ParsedBody, target: str, member: str = "model") -> bytes:
    """The body with another model and no other change. ``BadRequestError`` when it has no place for one."""
    try:
        return set_member(body, member, target, is_string=bool(parsed.model))
    except ValueError as error:
        raise BadRequestError(f"the model cannot be replaced: {error}", param=member) from None


def restoring(paths: Sequence[Sequence[str]], streaming: bool, target: str, model: str) -> BodyTransform:
    """What replaces ``target`` by ``model`` in one response, at ``paths`` of keys."""
    return (EventStreamRewriter if streaming else JsonRewriter)(paths, target, model)
