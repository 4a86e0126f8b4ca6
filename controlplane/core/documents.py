"""Sets of documents: planned first, then applied as a whole or not at all; and everything as documents.

A plan says of each document what applying it would do. It is made by doing it in a transaction that is
rolled back, so plan and deed cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from django.db import transaction

from controlplane.core.errors import (
    Detail,
    ForbiddenError,
    InvalidError,
    MissingError,
    ServiceError,
    StaleError,
)
from controlplane.core.kinds import KINDS, Kinds, Service
from controlplane.core.metadata import written_at
from controlplane.core.references import Looked
from controlplane.core.resources import Document
from controlplane.core.roles import Action, Actor, require
from controlplane.core.sets import Placed, placed
from dataplane.errors import ConfigError, did_you_mean

MAX_DOCUMENTS: Final = 5000
MAX_WARNINGS: Final = 100

ABSENT: Final = None
"""Stands for "not there" in changes."""


class Change(msgspec.Struct, frozen=True):
    """One value that differs."""

    path: str
    before: Any
    after: Any


class Step(msgspec.Struct, frozen=True):
    """What becomes of one document."""

    kind: str
    name: str
    action: Literal["create", "update", "unchanged"]
    changes: list[Change] = []
    """What an update changes, in the order of the paths."""


class Plan(msgspec.Struct, frozen=True):
    """What a set of documents comes to."""

    applied: bool
    steps: list[Step]
    warnings: list[Detail] = []
    """What is odd about the documents and no mistake."""


class _RolledBack(Exception):
    """Ends a transaction that was only tried."""


def apply(actor: Actor, documents: Sequence[Any], *, dry_run: bool = False, kinds: Kinds = KINDS) -> Plan:
    """Create or change every object the documents describe. ``InvalidError`` tells all that is wrong.

    ``ForbiddenError`` when the actor may not change one of them, ``StaleError`` when nothing else is wrong
    than that objects have other versions than the documents are meant for.
    """
    problems: list[ConfigError] = []
    found = list(islice(placed(documents, [each.kind for each in kinds.all()], problems), MAX_DOCUMENTS + 1))
    if len(found) > MAX_DOCUMENTS:
        raise InvalidError(f"these are too many documents; apply at most {MAX_DOCUMENTS} at once")
    steps: dict[int, Step] = {}
    warnings: list[Detail] = []
    try:
        with transaction.atomic():
            details = [Detail(problem.path, problem.message) for problem in problems]
            stale: list[StaleError] = []
            details += _try_all(actor, found, kinds, steps, stale)
            if stale and len(stale) == len(details):
                stale[0].details = details
                raise stale[0]
            if details:
                raise InvalidError("nothing is applied; the mistakes are in details", details)
            warnings = list(islice(_warnings(found, steps, kinds), MAX_WARNINGS))
            if dry_run:
                raise _RolledBack
    except _RolledBack:
        pass
    return Plan(applied=not dry_run, steps=[steps[index] for index in sorted(steps)], warnings=warnings)


def _warnings(documents: Sequence[Placed], steps: Mapping[int, Step], kinds: Kinds) -> Iterator[Detail]:
    """Names that nobody has, now that the whole set is there."""
    looked = Looked(kinds)
    for service in kinds.all():
        if not service.references:
            continue
        places = {
            step.name: documents[index].place for index, step in steps.items() if step.kind == service.kind
        }
        for row in service.model.objects.filter(name__in=places):
            for part in looked.missing(service, row):
                yield Detail(f"{places[row.name]}.{part.path}", part.message)


def _try_all(
    actor: Actor, documents: Sequence[Placed], kinds: Kinds, steps: dict[int, Step], stale: list[StaleError]
) -> list[Detail]:
    details: list[Detail] = []
    seen: set[tuple[str, str]] = set()
    for index in _in_order(documents, kinds):
        place, document = documents[index]
        try:
            step = _try(actor, document, kinds)
        except ForbiddenError:
            raise  # nothing is told of a set to somebody who may not apply it
        except ServiceError as error:
            if isinstance(error, StaleError):
                stale.append(error)
            parts = error.details or [Detail("", error.message)]
            details.extend(
                Detail(f"{place}.{part.path}" if part.path else place, part.message) for part in parts
            )
            continue
        if (step.kind, step.name) in seen:
            details.append(
                Detail(place, f"{step.kind} {step.name} is in the set twice; a namespace makes no difference")
            )
        seen.add((step.kind, step.name))
        steps[index] = step
    return details


def _in_order(documents: Sequence[Placed], kinds: Kinds) -> list[int]:
    """What is referred to first; of a kind what is older on the server it comes from, then as written."""
    rank = {service.kind: position for position, service in enumerate(kinds.all())}

    def order(index: int) -> tuple[int, str, int]:
        document = documents[index].document
        kind = document.get("kind") if isinstance(document, dict) else None
        if not isinstance(kind, str) or kind not in rank:
            return len(rank), "", index
        return rank[kind], written_at(document.get("metadata")), index

    return sorted(range(len(documents)), key=order)


def _try(actor: Actor, document: Any, kinds: Kinds) -> Step:
    if not isinstance(document, dict):
        raise InvalidError("must be a mapping with apiVersion, kind, metadata and spec")
    service = kinds.of(document.get("kind"))
    if service is None:
        known = [known.kind for known in kinds.all()]
        kind = document.get("kind")
        hint = did_you_mean(kind, known) if isinstance(kind, str) else ""
        message = f"{kind!r} is not known{hint}; use one of {', '.join(known)}"
        raise InvalidError(message, [Detail("kind", message)])
    with transaction.atomic():
        return _do(actor, service, document)


def _do(actor: Actor, service: Service, document: Document) -> Step:
    require(actor, Action.WRITE, service.kind)
    wanted = service.judge(document)
    try:
        found = service.get(actor, wanted.name)
    except MissingError:
        row = service.create(actor, document)
        service.applied(actor, row)
        return Step(service.kind, row.name, "create")
    before = service.document(found)
    row = service.update(actor, wanted.name, document)
    service.applied(actor, row)
    if row.version == found.version:
        return Step(service.kind, wanted.name, "unchanged")
    changes = list(differences(_unversioned(before), _unversioned(service.document(row))))
    return Step(service.kind, wanted.name, "update", changes)


def export(actor: Actor, kinds: Kinds = KINDS) -> list[Document]:
    """Everything as documents that can be applied anywhere: without versions, in the order of applying."""
    return [
        _said(service.document(row))
        for service in kinds.all()
        for row in service.rows(actor).order_by(*service.export_order)
    ]


def _said(document: Document) -> Document:
    """What the operator said: the document without what the control plane adds."""
    return {key: value for key, value in _unversioned(document).items() if key != "status"}


def _unversioned(document: Document) -> Document:
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return {**document, "metadata": metadata}


def differences(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Values that differ, leaf by leaf; in lists by position."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), inner)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            old = before[index] if index < len(before) else ABSENT
            new = after[index] if index < len(after) else ABSENT
            yield from differences(old, new, f"{path}[{index}]")
    elif before != after:
        yield Change(path, before, after)
