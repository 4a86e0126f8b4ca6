"""Configurations on the discovery stream: what each worker is sent, and what its answers mean.

A worker is sent one resource, named as its pool or payload processor, or none while nothing is published. The
resource names the revision and the newest rollout of it, so a revision that is tried again is another set,
which a worker that runs the revision accepts without building anything. Both sides know sets by their
digests; that of an answer says which rollout it is about.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from controlplane.configs import workers
from controlplane.configs.models import Rollout
from controlplane.configs.subjects import BY_TYPE, OneEach
from controlplane.configs.workers import Desired, Pair
from controlplane.core.errors import Detail, MissingError
from controlplane.core.roles import Actor, Channel, Role
from controlplane.xds.models import Worker
from controlplane.xds.subscriptions import Answer
from dataplane.xds.codec import wrapped
from dataplane.xds.messages import Resource, digest_of

log = logging.getLogger(__name__)

RECOGNISED: Final = 50
"""The newest rollouts of a document whose sets are known when a worker comes with them."""
NOTHING: Final = digest_of(())


joined, gone = workers.joined, workers.gone


class ConfigBuilder:
    """What each worker of a kind should run."""

    def __init__(self, subject: OneEach) -> None:
        self._subject = subject

    def build(self, names: Collection[str]) -> Mapping[str, Mapping[str, Mapping[str, Resource]]]:
        """``POOL/ID`` of workers -> type -> name -> resource."""
        pairs = {name: pair_of(name) for name in names}
        type_url = self._subject.type_url
        found = workers.desired(list(pairs.values()), self._subject)
        made: dict[tuple[int, str], Resource] = {}
        built: dict[str, Mapping[str, Mapping[str, Resource]]] = {}
        for name, (worker, pool) in pairs.items():
            wanted = found.get((worker, pool))
            if wanted is None:
                built[name] = {type_url: {}}
                continue
            key = (wanted.rollout, pool)
            if key not in made:
                made[key] = resource_of(wanted, pool)
            built[name] = {type_url: {pool: made[key]}}
        return built


def answered(answers: Sequence[tuple[str, Answer]]) -> None:
    """What workers, by node id, said of their configurations: each answer is about one rollout."""
    rows = {row.node_id: row for row in Worker.objects.filter(node_id__in={node for node, _ in answers})}
    for node, answer in answers:
        if node in rows:
            _answered(rows[node], answer)


def _answered(row: Worker, answer: Answer) -> None:
    digest = answer.version.digest
    if digest == NOTHING:
        if answer.refusal is None:
            Worker.objects.filter(pk=row.pk).update(applied=None)
        return
    subject = BY_TYPE[answer.type_url]
    rollout = _rollout_of(subject, row.pool, digest)
    if rollout is None:
        log.warning("%s answers a configuration that is not known any more", row.node_id)
        return
    actor = Actor(row.user, Role.WORKER, Channel.AUTOMATION)
    name, number = rollout.document.name, rollout.revision.number
    try:
        workers.acknowledge(actor, row.node_id, name, number, details_of(answer), rollout.pk, subject.kind)
    except MissingError:  # the document has gone in the meantime
        log.info("%s answers for a configuration that has been removed", row.node_id)


def pair_of(name: str) -> Pair:
    """Worker and pool of an audience's name."""
    pool, _, worker = name.partition("/")
    return worker, pool


def resource_of(wanted: Desired, pool: str) -> Resource:
    """What is sent; the same for the same revision in the same rollout."""
    content = wanted.content.encode()
    said: dict[str, Any] = {
        "content": msgspec.Raw(content),
        "digest": wanted.digest,
        "document": wanted.document,
        "revision": wanted.revision,
        "rollout": wanted.rollout,
    }
    return Resource(pool, wrapped(msgspec.json.encode(said)))


def _rollout_of(subject: OneEach, pool: str, digest: str) -> Rollout | None:
    """The rollout whose set has this digest; None when there is none among the newest."""
    document = subject.document_of(pool)
    if document is None:
        return None
    found = Rollout.objects.filter(document=document).select_related("document", "revision")
    for rollout in found.order_by("-id")[:RECOGNISED]:
        revision = rollout.revision
        sent = Desired(rollout.document.name, revision.number, revision.digest, revision.content, rollout.pk)
        if digest_of((resource_of(sent, pool),)) == digest:
            return rollout
    return None


def details_of(answer: Answer) -> list[Detail]:
    """Why a set is refused; empty = it is not."""
    if answer.refusal is None:
        return []
    told = [Detail(problem.path, problem.message) for problem in answer.refusal.problems]
    return told or [Detail("", answer.refusal.message)]
