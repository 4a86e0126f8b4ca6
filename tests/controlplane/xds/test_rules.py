"""In which order an Envoy is told what is new, what has changed and what is gone."""

from __future__ import annotations

import pytest

from controlplane.xds.nodes import CLUSTER, ENDPOINTS, LISTENER, ROUTES, NodeKind, kind_of
from controlplane.xds.rules import RULES
from controlplane.xds.subscriptions import Snapshot, Subscriptions
from dataplane.xds.messages import POOL_OBJECTS, Refusal, Request, Resource, Response

Said = list[tuple[str, list[str]]]


def resources(**values: str) -> dict[str, Resource]:
    return {name: Resource(name, value.encode()) for name, value in values.items()}


def snapshot(number: int, routes: str, clusters: dict[str, str], endpoints: dict[str, str]) -> Snapshot:
    return Snapshot(
        number,
        {
            LISTENER: resources(public="listener"),
            ROUTES: resources(public=routes),
            CLUSTER: resources(**clusters),
            ENDPOINTS: resources(**endpoints),
        },
    )


class Envoy:
    """Asks as Envoy does: for endpoints of the clusters it has, for routes once it has a listener."""

    def __init__(self, first: Snapshot) -> None:
        self.server = Subscriptions(RULES[NodeKind.GATEWAY])
        self.snapshot = first
        self.names: dict[str, tuple[str, ...]] = {CLUSTER: (), LISTENER: ()}
        self.versions: dict[str, str] = {}
        self.nonces: dict[str, str] = {}
        self.refuses: set[str] = set()
        for type_url in (CLUSTER, LISTENER):
            self.server.hear(Request(type_url))

    def ask(self, type_url: str, refusal: Refusal | None = None) -> None:
        version, nonce = self.versions.get(type_url, ""), self.nonces.get(type_url, "")
        self.server.hear(Request(type_url, version, nonce, self.names[type_url], refusal=refusal))

    def take(self, response: Response) -> None:
        kind = response.type_url
        self.nonces[kind] = response.nonce
        if kind in self.refuses:
            self.ask(kind, Refusal("no"))
            return
        self.versions[kind] = response.version
        names = tuple(each.name for each in response.resources)
        if kind == CLUSTER:
            self.names[ENDPOINTS] = names
        elif kind == LISTENER:
            self.names[ROUTES] = ("public",)
        self.ask(kind)
        follows = {CLUSTER: ENDPOINTS, LISTENER: ROUTES}.get(kind)
        if follows is not None:
            self.ask(follows)

    def rounds(self, to: Snapshot | None = None) -> list[Said]:
        """What is sent, step by step, until nothing more is."""
        self.snapshot = to or self.snapshot
        found: list[Said] = []
        while responses := self.server.due(self.snapshot):
            short = [(each.type_url, sorted(r.name for r in each.resources)) for each in responses]
            found.append(short)
            for response in responses:
                self.take(response)
            assert len(found) < 10
        return found


@pytest.fixture
def envoy() -> Envoy:
    """Has taken one pool."""
    found = Envoy(snapshot(1, "a", {"a": "1"}, {"a": "1"}))
    assert found.rounds() == [
        [(CLUSTER, ["a"])],
        [(ENDPOINTS, ["a"])],
        [(LISTENER, ["public"])],
        [(ROUTES, ["public"])],
    ]
    return found


def test_what_is_new_gets_its_ends_before_its_routes(envoy: Envoy) -> None:
    assert envoy.rounds(snapshot(2, "a b", {"a": "1", "b": "1"}, {"a": "1", "b": "1"})) == [
        [(CLUSTER, ["a", "b"])],
        [(ENDPOINTS, ["b"])],
        [(ROUTES, ["public"])],
    ]


def test_what_is_gone_loses_its_routes_before_its_ends(envoy: Envoy) -> None:
    envoy.rounds(snapshot(2, "a b", {"a": "1", "b": "1"}, {"a": "1", "b": "1"}))
    assert envoy.rounds(snapshot(3, "a", {"a": "1"}, {"a": "1"})) == [
        [(ROUTES, ["public"])],
        [(CLUSTER, ["a"])],
    ]


def test_ends_stay_while_the_routes_that_lead_elsewhere_are_refused(envoy: Envoy) -> None:
    envoy.refuses = {ROUTES}
    assert envoy.rounds(snapshot(2, "none", {}, {})) == [[(ROUTES, ["public"])]]


def test_only_endpoints_of_the_pool_that_has_changed_are_sent(envoy: Envoy) -> None:
    envoy.rounds(snapshot(2, "a b", {"a": "1", "b": "1"}, {"a": "1", "b": "1"}))
    changed = snapshot(3, "a b", {"a": "1", "b": "1"}, {"a": "1", "b": "2"})
    assert envoy.rounds(changed) == [[(ENDPOINTS, ["b"])]]
    assert envoy.rounds(snapshot(4, "a b", {"a": "1", "b": "1"}, {"a": "1", "b": "2"})) == []


def test_a_cluster_that_has_changed_is_sent_its_endpoints_once_more(envoy: Envoy) -> None:
    assert envoy.rounds(snapshot(2, "a", {"a": "2"}, {"a": "1"})) == [
        [(CLUSTER, ["a"]), (ENDPOINTS, ["a"])],
    ]


def test_who_comes_back_with_what_there_is_is_sent_nothing(envoy: Envoy) -> None:
    again = Envoy(envoy.snapshot)
    again.server = Subscriptions(RULES[NodeKind.GATEWAY])
    for type_url, names in envoy.names.items():
        again.server.hear(Request(type_url, envoy.versions[type_url], names=names))
    assert again.server.due(envoy.snapshot) == []


def test_no_names_of_endpoints_are_none(envoy: Envoy) -> None:
    stream = Subscriptions(RULES[NodeKind.GATEWAY])
    stream.hear(Request(ENDPOINTS))
    assert stream.due(envoy.snapshot) == []


def test_what_is_asked_for_first_tells_envoys_from_pickers() -> None:
    assert (kind_of(CLUSTER), kind_of(POOL_OBJECTS)) == (NodeKind.GATEWAY, NodeKind.PICKER)
