"""Which streams a token opens, by what it is bound to."""

from __future__ import annotations

import pytest

from controlplane.core.roles import Action, Actor, Binding, BoundTo, Role
from controlplane.xds.admission import refusal
from controlplane.xds.nodes import SECRET, NodeKind, kind_of
from dataplane.xds.messages import PICKER_CONFIG, POOL_OBJECTS, PROCESSOR_CONFIG, STATIC_GATEWAY, Node

POOL = Binding(BoundTo.POOL, "llama")
EDGE = Binding(BoundTo.GATEWAY, "public")
CHAIN = Binding(BoundTo.PROCESSOR, "by-model")
PICKER, GATEWAY, PROCESSOR = NodeKind.PICKER, NodeKind.GATEWAY, NodeKind.PROCESSOR


def test_what_holds_a_private_key_makes_a_stream_that_of_a_gateway() -> None:
    assert [kind_of(each) for each in (SECRET, STATIC_GATEWAY, POOL_OBJECTS)] == [GATEWAY, GATEWAY, PICKER]
    assert [kind_of(each) for each in (PICKER_CONFIG, PROCESSOR_CONFIG)] == [PICKER, PROCESSOR]


@pytest.mark.parametrize(
    ("binding", "node", "kind", "why"),
    [
        (None, Node("w", "llama"), PICKER, ""),
        (None, Node("e", "public"), GATEWAY, "gateway public is sent its private key"),
        (POOL, Node("w", "llama"), PICKER, ""),
        (POOL, Node("w", "other"), PICKER, "bound to the pool llama, not to the pool other"),
        (POOL, Node("w", "llama"), GATEWAY, "bound to the pool llama, not to the gateway llama"),
        (POOL._replace(node="w"), Node("w", "llama"), PICKER, ""),
        (POOL._replace(node="w"), Node("x", "llama"), PICKER, "bound to the node w, not to x"),
        (EDGE, Node("e", "public"), GATEWAY, ""),
        (EDGE, Node("e", "inner"), GATEWAY, "bound to the gateway public, not to the gateway inner"),
        (EDGE, Node("e", "public"), PICKER, "bound to the gateway public, not to the pool public"),
        (EDGE._replace(node="e"), Node("e-keeper", "public"), GATEWAY, ""),
        (EDGE._replace(node="e"), Node("f", "public"), GATEWAY, "bound to the node e, not to f"),
        (None, Node("i", "by-model"), PROCESSOR, ""),
        (CHAIN, Node("i", "by-model"), PROCESSOR, ""),
        (CHAIN, Node("i", "other"), PROCESSOR, "to the processor by-model, not to the processor other"),
        (CHAIN, Node("i", "by-model"), PICKER, "to the processor by-model, not to the pool by-model"),
        (POOL, Node("i", "llama"), PROCESSOR, "to the pool llama, not to the processor llama"),
        (EDGE, Node("i", "public"), PROCESSOR, "to the gateway public, not to the processor public"),
        (CHAIN._replace(node="i"), Node("j", "by-model"), PROCESSOR, "bound to the node i, not to j"),
    ],
)
@pytest.mark.parametrize("role", [Role.WORKER, Role.ADMIN])
def test_a_token_opens_what_it_is_bound_to(
    binding: Binding | None, node: Node, kind: NodeKind, why: str, role: Role
) -> None:
    said = refusal(Actor("a", role, binding=binding), node, kind)
    assert (said == "") if why == "" else (why in said)


def test_who_is_bound_may_follow_and_nothing_else_whatever_the_role() -> None:
    actor = Actor("a", Role.ADMIN, binding=POOL)
    assert [action for action in Action if actor.may(action, "InferencePool")] == [Action.FOLLOW]
