"""p2p-source-producer: which peer the sidecar pulls cached blocks from, if any."""

from collections import Counter

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.extproc.events import Proceed
from dataplane.headers import KV_CACHE_SOURCE
from dataplane.plugin.base import Stability
from epp.interfaces.attributes import PREFIX_MATCH, PrefixMatch
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.scheduling import SchedulingResult
from epp.plugins.producers.p2p_source import P2pSourceProducer, fnv32a
from tests.support.pool import chosen, make_plugin, make_request, make_table, prefilled
from tests.support.request_path import Rig, set_headers


def source(
    table: EndpointTable,
    held: list[float],
    result: SchedulingResult,
    *,
    request_id: str = "request-1",
    producer: str = "",
    **parameters: object,
) -> str | None:
    """The peer that is named when the endpoints hold so many blocks of 16 tokens."""
    request = make_request()
    request.request_id = request_id
    match = PrefixMatch(table.all(), np.array(held), 100, 16)
    request.put(PREFIX_MATCH.by(producer) if producer else PREFIX_MATCH, match)
    told: dict[str, str] = {}
    make_plugin(P2pSourceProducer, table, parameters).pre_request(request, result, told)
    assert set(told) <= {KV_CACHE_SOURCE}
    return told.get(KV_CACHE_SOURCE)


def at(table: EndpointTable, position: int) -> str:
    return table.all().endpoint(position).key


def test_the_peer_that_holds_more_than_the_destination_is_named():
    table = make_table(3)
    assert source(table, [0, 5, 1], chosen(table.all(), 0)) == at(table, 1)


def test_there_is_no_peer_where_nobody_holds_more():
    table = make_table(3)
    for held in ([5, 5, 1], [0, 0, 0], [5, 0, 0]):
        assert source(table, list(map(float, held)), chosen(table.all(), 0)) is None


def test_the_difference_must_be_worth_it():
    table = make_table(2)
    result = chosen(table.all(), 0)
    assert source(table, [2, 5], result, minCachedTokenDelta=48) == at(table, 1)
    assert source(table, [2, 5], result, minCachedTokenDelta=49) is None


def test_the_endpoint_that_computes_the_prompt_counts():
    table = make_table(3)
    result = prefilled(table.all(), 0, 2)
    assert source(table, [0, 5, 5], result) is None
    assert source(table, [5, 0, 0], result) == at(table, 0)
    assert source(table, [5, 0, 0], result, prefillProfileName="other") is None


def test_peers_within_one_block_of_the_most_share_the_pulls_by_load():
    table = make_table(4, waiting=[0, 0, 1, 0])
    result = chosen(table.all(), 0)
    drawn = Counter(source(table, [0, 5, 6, 4], result, request_id=f"request-{i}") for i in range(3000))
    assert set(drawn) == {at(table, 1), at(table, 2)}
    assert drawn[at(table, 1)] / 3000 == pytest.approx(2 / 3, abs=0.04)


def test_the_choice_is_the_requests_own():
    table = make_table(4)
    result = chosen(table.all(), 0)
    for i in range(20):
        picks = {source(table, [0, 6, 6, 6], result, request_id=f"r{i}") for _ in range(3)}
        assert len(picks) == 1


def test_a_request_without_match_has_no_source():
    table = make_table(1)
    told: dict[str, str] = {}
    plugin = make_plugin(P2pSourceProducer, table)
    plugin.pre_request(make_request(), chosen(table.all(), 0), told)
    assert told == {}


def test_the_producer_can_be_named():
    table = make_table(2)
    result = chosen(table.all(), 0)
    named = {"prefixMatchInfoProducerName": "mine"}
    assert source(table, [0, 5], result, producer="mine", **named) == at(table, 1)
    assert source(table, [0, 5], result, **named) is None


def test_the_hash_is_fnv_1a():
    assert [fnv32a(data) for data in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


PICKER = """
- type: p2p-source-producer
- type: header-based-testing-filter
- type: max-score-picker
schedulingProfiles:
- {name: default, plugins: [{pluginRef: header-based-testing-filter}]}
"""
LONG = b'{"model": "m", "prompt": "%s"}' % (b"a long prompt " * 100)


def test_the_picker_names_the_source_and_lets_no_client_do_so():
    rig = Rig(PICKER, make_table(2))

    def ask(address: str, *headers: tuple[str, str]) -> Proceed:
        _, decision = rig.ask(("test-epp-endpoint-selection", address), *headers, body=LONG)
        assert isinstance(decision, Proceed)
        return decision

    forged = (KV_CACHE_SOURCE, "6.6.6.6:6")
    first = ask("10.0.0.1", forged)
    assert KV_CACHE_SOURCE not in set_headers(first)
    assert list(first.remove_headers) == [KV_CACHE_SOURCE]
    second = ask("10.0.0.2", forged)
    assert set_headers(second)[KV_CACHE_SOURCE] == b"10.0.0.1:8000"
    assert KV_CACHE_SOURCE not in set_headers(ask("10.0.0.2"))


def test_the_plugin_is_experimental():
    assert P2pSourceProducer.info.stability is Stability.ALPHA


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"minCachedTokenDelta": 0}, "minCachedTokenDelta: expected int >= 1"),
        ({"prefillProfileName": ""}, "prefillProfileName: expected str of length >= 1"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, object], problem: str):
    with pytest.raises(ConfigErrors) as caught:
        make_plugin(P2pSourceProducer, None, parameters)
    assert str(caught.value) == f"parameters.{problem}"
