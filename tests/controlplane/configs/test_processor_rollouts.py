"""A payload processor's configuration over HTTP: planned, tried, refused, gone back on; and on its stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from controlplane.configs.models import ProcessorDocument
from controlplane.core.documents import Step, apply, export
from controlplane.core.models import AuditEntry
from controlplane.core.roles import Role
from controlplane.xds import workers
from controlplane.xds.nodes import Audience, NodeKind
from controlplane.xds.resources import build
from controlplane.xds.subscriptions import Answer
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import PROCESSOR_CONFIG, Node, Problem, Refusal, Request, Version, digest_of
from dataplane.xds.transport import AdsStream, ServerAddress, StreamError
from tests.controlplane.xds.test_processes import PATIENCE_S, Plant, plant
from tests.support.controlplane import OPERATOR, VIEWER, client, picker_config, processor_config

__all__ = ["plant"]

ALL = "/api/v1/payloadprocessorconfigs"
ONE = f"{ALL}/by-model"


def post(api: Any, path: str, body: Any = None) -> tuple[int, Any]:
    answer = api.post(path, body or {}, format="json")
    return answer.status_code, answer.json()


def arrives(node: str) -> None:
    workers.arrived(Node(node, "by-model", {"component": "ipp"}), "processors", NodeKind.PROCESSOR)
    workers.joined({node})


def sent(node: str) -> dict[str, Any]:
    audience = Audience(NodeKind.PROCESSOR_WORKER, f"by-model/{node}")
    return dict(build({audience})[1][audience][PROCESSOR_CONFIG])


def number_sent(node: str) -> int:
    return int(json.loads(unwrapped(sent(node)["by-model"].value))["revision"])


def answers(node: str, *problems: Problem) -> None:
    refusal = Refusal("no", problems) if problems else None
    version = Version(1, digest_of(sent(node).values()))
    workers.answered([(node, Answer(PROCESSOR_CONFIG, version, "", refusal))])


@pytest.mark.django_db
def test_from_a_draft_over_a_canary_that_refuses_and_back() -> None:
    api = client(Role.OPERATOR)
    assert post(api, ALL, processor_config())[0] == 201
    arrives("i-1")
    arrives("i-2")
    assert post(api, f"{ONE}/publish")[1]["stage"] == "rolling"
    for node in ("i-1", "i-2"):
        assert number_sent(node) == 1
        answers(node)
    assert api.get(f"{ONE}/rollout").json()["stage"] == "complete"

    assert api.put(ONE, processor_config(5), format="json", HTTP_IF_MATCH='"1"').status_code == 200
    verdict = post(api, f"{ONE}/validate", processor_config(5))[1]
    assert (verdict["revision"], verdict["warnings"]) == (2, [])
    plan = api.get(f"{ONE}/plan?canary=1").json()
    first, second = (worker["worker"] for worker in plan["workers"])
    assert plan == {
        "kind": "PayloadProcessorConfig",
        "document": "by-model",
        "revision": 2,
        "active": 1,
        "changes": [
            {
                "path": "plugins[base-model-to-header].parameters.headerName",
                "before": "x-base-2",
                "after": "x-base-5",
            }
        ],
        "warnings": [],
        "pools": [],
        "affects": None,
        "workers": [
            {"worker": first, "pool": "by-model", "applied": 1, "first": True},
            {"worker": second, "pool": "by-model", "applied": 1, "first": False},
        ],
    }
    status, rollout = post(api, f"{ONE}/publish", {"canary": "1", "comment": "why"})
    assert (status, rollout["stage"], rollout["canary"], rollout["comment"]) == (201, "canary", "1", "why")
    assert (number_sent(first), number_sent(second)) == (2, 1)
    answers(first, Problem("plugins[0].type", "is unknown"))
    shown = api.get(f"{ONE}/rollout").json()
    assert (shown["stage"], shown["active"]) == ("halted", 1)
    assert shown["reason"] == f"{first} refuses it: plugins[0].type: is unknown"
    assert (number_sent(first), number_sent(second)) == (1, 1)

    status, back = post(api, f"{ONE}/rollback")
    assert (status, back["revision"], back["stage"]) == (201, 3, "rolling")
    for node in (first, second):
        answers(node)
    assert [each["stage"] for each in api.get(f"{ONE}/rollouts").json()["items"]] == [
        "complete",
        "rolled_back",
        "complete",
    ]
    assert [(each["number"], each["parent"]) for each in api.get(f"{ONE}/revisions").json()["items"]] == [
        (3, 1),
        (2, 1),
        (1, None),
    ]
    assert api.get(f"{ONE}/diff?from=1&to=3").json()["changes"] == []
    assert api.get(f"{ONE}/revisions/2").json()["content"]["kind"] == "PayloadProcessorConfig"
    assert {entry.kind for entry in AuditEntry.objects.exclude(kind__in=("User", "ApiToken"))} == {
        "PayloadProcessorConfig"
    }
    listed = api.get("/api/v1/workers?kind=processor&pool=by-model").json()
    assert [(each["id"], each["kind"], each["applied"]["revision"]) for each in listed["items"]] == [
        ("i-1", "processor", 3),
        ("i-2", "processor", 3),
    ]


@pytest.mark.django_db
def test_a_guard_that_says_nothing_or_nobody_feeds_is_refused() -> None:
    api = client()
    post(api, ALL, processor_config())
    status, refusal = post(api, f"{ONE}/publish", {"guard": {"minRequests": 5}})
    assert (status, refusal["details"]) == (
        422,
        [{"path": "guard", "message": "says maxErrorShare, maxBlockedShare or both"}],
    )
    assert api.get(f"{ONE}/rollout").status_code == 404
    guard = {"maxErrorShare": 0.1, "maxBlockedShare": 0.5, "minRequests": 5}
    assert post(api, f"{ONE}/publish", {"guard": guard})[1]["guard"] == guard
    pickers = "/api/v1/endpointpickerconfigs"
    post(api, pickers, picker_config())
    status, refusal = post(api, f"{pickers}/standard/publish", {"guard": {"maxBlockedShare": 0.5}})
    assert (status, refusal["details"]) == (
        422,
        [
            {
                "path": "guard.maxBlockedShare",
                "message": "would never act: workers of a EndpointPickerConfig have no guardrails",
            }
        ],
    )


@pytest.mark.django_db
def test_applying_begins_a_rollout_as_its_annotation_says() -> None:
    document = processor_config(rollout="manual", comment="first")
    assert apply(OPERATOR, [document]).steps == [Step("PayloadProcessorConfig", "by-model", "create")]
    row = ProcessorDocument.objects.get()
    assert ([each.comment for each in row.revisions.all()], row.rollouts.count()) == (["first"], 0)
    assert export(VIEWER) == [document]
    apply(OPERATOR, [processor_config()])
    assert [rollout.revision.number for rollout in row.rollouts.all()] == [1]
    apply(OPERATOR, [processor_config(7, rollout="2")])
    assert [rollout.canary_count for rollout in row.rollouts.all()] == [2, None]


@pytest.mark.django_db
def test_both_kinds_have_names_of_their_own() -> None:
    picker = picker_config(name="by-model")
    apply(OPERATOR, [picker, processor_config()])
    assert export(VIEWER) == [picker, processor_config()]
    api = client()
    for plural, kind in (("endpointpickerconfigs", "Endpoint"), ("payloadprocessorconfigs", "Payload")):
        found = api.get(f"/api/v1/{plural}").json()
        assert (found["total"], found["items"][0]["kind"][: len(kind)]) == (1, kind)
        assert post(api, f"/api/v1/{plural}", found["items"][0])[0] == 409
    assert api.delete(ONE, HTTP_IF_MATCH='"1"').status_code == 204
    assert export(VIEWER) == [picker]


@pytest.mark.django_db
def test_a_processor_is_for_no_pools() -> None:
    status, refusal = post(client(), ALL, processor_config(pools="llama"))
    assert (status, refusal["details"]) == (
        422,
        [
            {
                "path": "metadata.annotations[pointsman.dev/pools]",
                "message": "is not known; there are pointsman.dev/rollout, pointsman.dev/comment",
            }
        ],
    )


async def command(plant: Plant, *words: str, text: str | None = None) -> str:
    return await asyncio.to_thread(plant.command.says, *words, text=text)


@pytest.mark.integration
@pytest.mark.slow
async def test_a_stream_is_sent_what_is_published_and_its_refusal_stops_the_rollout(plant: Plant) -> None:
    """Over gRPC, with a token that is bound to the payload processor's name."""
    plant.token.write_text(
        await command(plant, "controlplane", "token", "pickers", "ipp", "--processor", "by-model")
    )
    assert plant.server is not None
    server = ServerAddress(target=plant.server.address, token_file=str(plant.token))
    name = "PayloadProcessorConfig/by-model"

    async def publish(number: float) -> None:
        await command(plant, "apply", "-", text=yaml.safe_dump(processor_config(number)))

    await publish(2)
    stream = await AdsStream.open(server)
    try:
        await stream.send(Request(PROCESSOR_CONFIG, names=("by-model",), node=Node("i-1", "by-model")))
        first = await stream.receive()
        (resource,) = first.resources
        found = json.loads(unwrapped(resource.value))
        assert (resource.name, found["document"], found["revision"]) == ("by-model", "by-model", 1)
        assert found["content"]["plugins"][1]["parameters"] == {"headerName": "x-base-2"}
        await stream.send(Request(PROCESSOR_CONFIG, first.version, first.nonce, ("by-model",)))

        await publish(5)
        second = await stream.receive()
        assert json.loads(unwrapped(second.resources[0].value))["revision"] == 2
        refusal = Refusal("no", (Problem("plugins[0]", "is not for me"),))
        await stream.send(
            Request(PROCESSOR_CONFIG, first.version, second.nonce, ("by-model",), refusal=refusal)
        )
        async with asyncio.timeout(PATIENCE_S):
            said = ""
            while "is halted" not in said:
                await asyncio.sleep(0.1)
                said = await command(plant, "rollout", "status", name)
        # It goes on with what it has, so it is sent nothing until there is something else.
        assert said.splitlines()[0] == (
            "rollout 2 of revision 2 is halted: i-1 refuses it: plugins[0]: is not for me"
        )
        assert "i-1 (by-model): rejected, runs revision 1" in said
        assert (await command(plant, "rollout", "back", name)).startswith(
            "rollout 3 of revision 3 is rolling"
        )
        third = await stream.receive()
        assert json.loads(unwrapped(third.resources[0].value))["revision"] == 3
    finally:
        await stream.close()
    stream = await AdsStream.open(server)
    try:
        await stream.send(Request(PROCESSOR_CONFIG, node=Node("i-1", "other")))
        with pytest.raises(StreamError, match="bound to the processor by-model, not to the processor other"):
            await stream.receive()
    finally:
        await stream.close()
