"""What processors say of sets of guardrail policies: what each answer means for each policy of the set.

Taken, all revisions of the set are in force there. Refused, it is the fault of the policies that the
processor names in its problems; where it names none, of all that are new to it. The others are not in force
either, and wait for the set that is made when the rollouts of the refused ones have stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from controlplane.configs import workers
from controlplane.configs.delivery import details_of
from controlplane.configs.models import ConfigDocument, ConfigRevision, RevisionAck, Rollout, Running
from controlplane.configs.rollout import SPREADING, Outcome
from controlplane.configs.subjects import POLICIES
from controlplane.core.errors import Detail, MissingError
from controlplane.core.roles import Actor, Channel, Role
from controlplane.policies.models import PolicySet
from controlplane.xds.models import Worker
from controlplane.xds.subscriptions import Answer

log = logging.getLogger(__name__)

Member = tuple[int, int, int]
"""Policy, number of its revision, rollout; the first and the last by key."""


def answered(answers: Sequence[tuple[str, Answer]]) -> None:
    """What processors, by node id, said of the sets they were sent."""
    nodes = {node for node, _ in answers}
    rows = {row.node_id: row for row in Worker.objects.filter(node_id__in=nodes, kind=POLICIES.node)}
    for node, answer in answers:
        if node in rows:
            _answered(rows[node], answer)


def _answered(row: Worker, answer: Answer) -> None:
    found = PolicySet.objects.filter(digest=answer.version.digest).first()
    if found is None:
        log.warning("%s answers a set of policies that is not known any more", row.node_id)
        return
    there = set(ConfigDocument.objects.filter(kind=POLICIES.kind).values_list("pk", flat=True))
    members: list[Member] = [(pk, number, rollout) for pk, number, rollout in found.members if pk in there]
    held = dict(Running.objects.filter(worker=row).values_list("document_id", "revision__number"))
    if answer.refusal is None:
        _taken(row, [each for each in members if held.get(each[0], 0) <= each[1]], held)
    else:
        new = [each for each in members if held.get(each[0], 0) < each[1]]
        _refused(row, members, new, details_of(answer))


def _taken(row: Worker, members: Sequence[Member], held: dict[int, int]) -> None:
    """These are in force at a processor. Those whose rollouts wait for it are told one by one."""
    ids = {rollout for _, _, rollout in members}
    spreading = set(Rollout.objects.filter(pk__in=ids, stage__in=SPREADING).values_list("pk", flat=True))
    told = set(
        RevisionAck.objects.filter(rollout__in=ids, worker=row.node_id, outcome=Outcome.APPLIED).values_list(
            "rollout", flat=True
        )
    )
    _note(row, [each for each in members if held.get(each[0], 0) < each[1]])
    for each in members:
        if each[2] in spreading and each[2] not in told:
            _tell(row, each, [])
    there = set(Rollout.objects.filter(pk__in=ids - spreading - told).values_list("pk", flat=True))
    RevisionAck.objects.bulk_create(
        [RevisionAck(rollout_id=pk, worker=row.node_id, outcome=Outcome.APPLIED) for pk in sorted(there)],
        update_conflicts=True,
        unique_fields=["rollout", "worker"],
        update_fields=["outcome", "problems"],
    )


def _note(row: Worker, members: Sequence[Member]) -> None:
    """Write down what is newly in force."""
    wanted = {(pk, number) for pk, number, _ in members}
    rows = ConfigRevision.objects.filter(
        document__in={pk for pk, _ in wanted}, number__in={number for _, number in wanted}
    ).order_by()
    Running.objects.bulk_create(
        [
            Running(worker=row, document_id=each.document_id, revision=each)
            for each in rows.only("pk", "document_id", "number")
            if (each.document_id, each.number) in wanted
        ],
        update_conflicts=True,
        unique_fields=["worker", "document"],
        update_fields=["revision"],
    )


def _refused(
    row: Worker, members: Sequence[Member], new: Sequence[Member], problems: Sequence[Detail]
) -> None:
    """Say it to the rollouts of those whose fault it is."""
    names = dict(ConfigDocument.objects.filter(pk__in=[pk for pk, _, _ in members]).values_list("pk", "name"))
    of_name = {problem: _name_in(problem.path, names.values()) for problem in problems}
    blamed = {name for name in of_name.values() if name}
    for each in members if blamed else new:
        name = names[each[0]]
        if not blamed or name in blamed:
            _tell(row, each, [problem for problem, whose in of_name.items() if whose in ("", name)])


def _name_in(path: str, names: Collection[str]) -> str:
    """The policy that a path is in, ``NAME.spec...``; empty for none."""
    found = [name for name in names if path == name or path.startswith(f"{name}.spec")]
    return max(found, key=len, default="")


def _tell(row: Worker, member: Member, problems: Sequence[Detail]) -> None:
    actor = Actor(row.user, Role.WORKER, Channel.AUTOMATION)
    pk, number, rollout = member
    document = ConfigDocument.objects.filter(pk=pk).first()
    if document is None:
        return
    try:
        workers.acknowledge(actor, row.node_id, document.name, number, problems, rollout, POLICIES.kind)
    except MissingError:  # the policy has gone in the meantime
        log.info("%s answers for a policy that has been removed", row.node_id)
