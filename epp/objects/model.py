"""The objects a pool's operator declares beside its configuration: objectives and model rewrites.

Plain frozen values, whatever they were read from. Who reads them checks them, and owns the errors; here
nothing is checked again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dataplane.payload.member_scanner import MAX_TEXT_BYTES

MAX_MODEL_NAME_BYTES: Final = MAX_TEXT_BYTES
"""Longest model name, in UTF-8, that a request can be given: longer ones could not be restored."""

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 1_000_000


class InferenceObjective(msgspec.Struct, frozen=True):
    """A class of requests, named by the objective header."""

    name: str
    priority: int = 0
    """Higher is served first; below 0 a request may be shed."""


class RewriteTarget(msgspec.Struct, frozen=True):
    """One model that a rule may choose."""

    model_rewrite: str
    """Name of the model on the model servers; UTF-8 text of 1 to ``MAX_MODEL_NAME_BYTES`` bytes."""
    weight: int | None = None
    """Share of the requests, ``MIN_WEIGHT`` to ``MAX_WEIGHT``; None where no target has one: all alike.

    A target without a weight beside targets with one is never chosen.
    """


class RewriteRule(msgspec.Struct, frozen=True):
    """Which requested models are served by which others."""

    targets: tuple[RewriteTarget, ...]
    """At least one."""
    matches: tuple[str, ...] = ()
    """Requested names, compared exactly; none: a generic rule, for every model and for none."""


class ModelRewrite(msgspec.Struct, frozen=True):
    """An InferenceModelRewrite object."""

    name: str
    created_at: float
    """Seconds since the epoch; of two objects with a rule for one model the older decides."""
    rules: tuple[RewriteRule, ...] = ()
