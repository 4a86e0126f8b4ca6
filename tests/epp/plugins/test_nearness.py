"""The nearest level two endpoints have in common."""

from epp.interfaces.attributes import PEER_ENDPOINT, TOPOLOGY, Topology
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.request import InferenceRequest
from epp.plugins.nearness import Nearness
from tests.support.pool import add_endpoint, make_request, make_table

KEY = TOPOLOGY.by("t")


def pool(*places: Topology | None) -> EndpointTable:
    """Endpoints at these places; the first is the peer of `asking`."""
    table = make_table(len(places))
    for endpoint, place in zip(table.all().endpoints, places, strict=True):
        table.annotate(endpoint, KEY, place)
    return table


def asking(table: EndpointTable) -> InferenceRequest:
    request = make_request()
    request.put(PEER_ENDPOINT, table.all().endpoint(0))
    return request


def levels(*places: Topology | None) -> list[int] | None:
    table = pool(*places)
    found = Nearness(TOPOLOGY).of(asking(table), table.all())
    return None if found is None else found.tolist()


def test_the_nearest_common_level_counts():
    here = Topology("h1", "r1", "z1", "g1")
    assert levels(
        here,
        here,
        Topology("h2", "r1", "z1", "g1"),
        Topology("h2", "r2", "z1", "g1"),
        Topology("h2", "r2", "z2", "g1"),
        Topology("h2", "r2", "z2", "g2"),
        None,
    ) == [0, 0, 1, 2, 3, 4, 4]


def test_the_same_name_in_another_place_is_another_thing():
    assert levels(Topology("h", "r1", "z1"), Topology("h", "r1", "z2"), Topology("h", "r1")) == [0, 4, 0]
    assert levels(Topology("", "r1", "z1", "g1"), Topology("", "r1", "z1", "g2")) == [1, 4]


def test_names_that_are_not_known_are_nothing_in_common():
    assert levels(Topology(zone="z"), Topology("h", "", ""), Topology("h", zone="z")) == [2, 4, 2]


def test_without_a_peer_or_its_place_nothing_is_known():
    table = pool(None, Topology("h"))
    assert Nearness(TOPOLOGY).of(make_request(), table.all()) is None
    assert Nearness(TOPOLOGY).of(asking(table), table.all()) is None
    assert Nearness(TOPOLOGY).of(asking(make_table(1)), make_table(1).all()) is None


def test_a_peer_that_has_left_is_no_peer():
    table = pool(Topology("h"), Topology("h"))
    request = asking(table)
    table.remove("default/e0")
    new = add_endpoint(table, "new")
    table.annotate(new, KEY, Topology("h"))
    assert Nearness(TOPOLOGY).of(request, table.all()) is None


def test_changes_and_new_endpoints_are_seen():
    table = pool(Topology("h"), Topology("h"))
    nearness, request = Nearness(TOPOLOGY), asking(table)
    second = table.all().endpoint(1)
    assert nearness.of(request, table.all()).tolist() == [0, 0]
    table.annotate(second, KEY, Topology("other"))
    assert nearness.of(request, table.all()).tolist() == [0, 4]
    for number in range(8):
        table.annotate(add_endpoint(table, f"n{number}"), KEY, Topology("h"))
    assert nearness.of(request, table.all()).tolist() == [0, 4, *[0] * 8]
