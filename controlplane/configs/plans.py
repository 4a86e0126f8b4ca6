"""What publishing a revision would change, and for whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from controlplane.configs import affected, rollouts
from controlplane.configs.content import parsed
from controlplane.configs.models import ConfigDocument, ConfigRevision
from controlplane.configs.revisions import revision_of, run_by
from controlplane.configs.rollout import Canary, Stage, State, is_reached
from controlplane.configs.rollouts import found
from controlplane.configs.services import ConfigService
from controlplane.configs.subjects import subject_of
from controlplane.core.diff import changes
from controlplane.core.errors import InvalidError
from controlplane.core.resources import Document
from controlplane.core.roles import Action, Actor, require
from dataplane.config.epp_checks import KIND
from dataplane.errors import ConfigError


def document_of(actor: Actor, name: str, kind: str = KIND) -> ConfigDocument:
    """A document for reading. ``MissingError`` if there is none."""
    require(actor, Action.READ, kind)
    return found(name, kind)


def plan(
    actor: Actor, name: str, number: int | None, canary: Canary | None, kind: str = KIND
) -> dict[str, Any]:
    """The structural difference to the active revision, and who is affected, the canary first."""
    row = document_of(actor, name, kind)
    revision = revision_of(row, number)
    awaited = list(rollouts.awaited(row).select_related("applied"))
    stage = Stage.ROLLING if canary is None else Stage.CANARY
    state = State(canary=canary, salt=row.name, workers=frozenset(worker.node_id for worker in awaited))
    state = replace(state, stage=stage)
    applied = run_by(row, awaited)
    workers = [
        {
            "worker": worker.node_id,
            "pool": worker.pool,
            "applied": applied.get(worker.node_id),
            "first": is_reached(state, worker.node_id),
        }
        for worker in awaited
    ]
    return {
        "kind": kind,
        "document": name,
        "revision": revision.number,
        "active": None if row.active is None else row.active.number,
        "changes": between(row.active, revision),
        "warnings": [*_warnings(row, revision), *affected.unenforced(row, awaited)],
        "pools": row.pools,
        "affects": affected.by(row, revision),
        "workers": sorted(workers, key=lambda worker: (not worker["first"], worker["worker"])),
    }


def compare(actor: Actor, name: str, before: int, after: int, kind: str = KIND) -> dict[str, Any]:
    """The structural difference of two revisions."""
    row = document_of(actor, name, kind)
    old, new = revision_of(row, before), revision_of(row, after)
    return {"document": name, "from": before, "to": after, "changes": between(old, new)}


def between(old: ConfigRevision | None, new: ConfigRevision) -> list[dict[str, Any]]:
    """Values that differ."""
    before = {} if old is None else parsed(old.content)
    return [msgspec.to_builtins(change) for change in changes(before, parsed(new.content))]


def _warnings(row: ConfigDocument, revision: ConfigRevision) -> list[str]:
    """What the worker's code says today, and whether it can be published at all."""
    problems: list[ConfigError] = []
    verdict = subject_of(row).judge(parsed(revision.content), problems)
    found = [str(problem) for problem in problems] if verdict is None else list(verdict.warnings)
    newest = rollouts.newest_number(row)
    return [*found, rollouts.too_old(revision.number, newest)] if revision.number < newest else found


def validate(actor: Actor, name: str, document: Document, service: ConfigService) -> dict[str, Any]:
    """What a document comes to, kept nowhere. ``InvalidError`` with everything that is wrong with it.

    ``changes`` are those to the newest revision there is.
    """
    require(actor, Action.READ, service.kind)
    wanted = service.judge(document)
    if wanted.name != name:
        raise InvalidError.of([ConfigError(f"is not {name}", path="metadata.name")])
    said = wanted.spec.content
    of_document = ConfigRevision.objects.filter(document__kind=service.kind, document__name=name)
    same, newest = of_document.filter(digest=said.digest).first(), of_document.first()
    found = [] if newest is None else changes(parsed(newest.content), parsed(said.text))
    return {
        "digest": said.digest,
        "warnings": list(said.warnings),
        "revision": None if same is None else same.number,
        "changes": msgspec.to_builtins(found),
    }
