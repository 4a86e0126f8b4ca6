"""Bodies and queries of the configuration's API, decoded as strictly as documents are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from rest_framework.request import Request

from controlplane.configs.canary import parse_canary
from controlplane.configs.models import MAX_REASON
from controlplane.configs.rollout import Canary, Guard
from controlplane.configs.rollouts import Wish
from controlplane.core.errors import InvalidError
from controlplane.core.resources import check_texts
from dataplane.config.decode import decode_struct
from dataplane.errors import ConfigError

Id = Annotated[int, msgspec.Meta(ge=1, le=(1 << 53))]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Comment = Annotated[str, msgspec.Meta(max_length=MAX_REASON)]


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What a caller sends."""


class GuardBody(Body, kw_only=True):
    """When to stop by itself."""

    max_error_share: Share | None = None
    max_blocked_share: Share | None = None
    min_requests: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = 20


class PublishBody(Body, kw_only=True):
    """How to publish."""

    revision: Id | None = None
    canary: str | None = None
    guard: GuardBody | None = None
    comment: Comment = ""


class OrderBody(Body, kw_only=True):
    """An order to a rollout."""

    rollout: Id | None = None


class HaltBody(OrderBody, kw_only=True):
    """Why to stop."""

    reason: Comment = ""


class BackBody(OrderBody, kw_only=True):
    """Where to go back to."""

    revision: Id | None = None


B = TypeVar("B", bound=Body)


def body_of(request: Request, kind: type[B]) -> B:
    """The body. ``InvalidError`` with everything that is wrong with it; no body is an empty one."""
    raw: Any = request.data if request.body else {}
    problems: list[ConfigError] = []
    found = decode_struct(raw, kind, "", problems)
    if not problems:
        check_texts(raw, "", problems)
    if problems or found is None:
        raise InvalidError.of(problems or [ConfigError("must be a mapping")])
    return found


def wish_of(body: PublishBody) -> Wish:
    """What a caller wants published. ``InvalidError`` for a canary that is none."""
    return Wish(body.revision, canary_of(body.canary), _guard_of(body.guard), body.comment)


def _guard_of(body: GuardBody | None) -> Guard | None:
    if body is None:
        return None
    if body.max_error_share is None and body.max_blocked_share is None:
        raise InvalidError.of([ConfigError("says maxErrorShare, maxBlockedShare or both", path="guard")])
    return Guard(body.max_error_share, body.min_requests, body.max_blocked_share)


def canary_of(text: str | None) -> Canary | None:
    """The canary a text means. ``InvalidError`` when it means none."""
    try:
        return None if text is None else parse_canary(text)
    except ConfigError as error:
        raise InvalidError.of([ConfigError(error.message, path="canary")]) from None


def number_of(query: Mapping[str, str], name: str) -> int | None:
    """A number in the query. ``InvalidError`` when it is none."""
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 15 and int(text) > 0):
        raise InvalidError.of([ConfigError("must be the number of a revision", path=name)])
    return int(text)


def required(query: Mapping[str, str], name: str) -> int:
    """A number that must be in the query."""
    found = number_of(query, name)
    if found is None:
        raise InvalidError.of([ConfigError("is required: the number of a revision", path=name)])
    return found
