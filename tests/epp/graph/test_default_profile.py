"""The built-in default at work: load spreads, prefixes stick, and a short queue does not part them."""

import json
from collections import Counter

from dataplane.headers import Headers
from epp.graph import PluginGraph, load_graph
from epp.interfaces.endpoint import Booking, EndpointTable
from epp.interfaces.handle import Handle
from epp.interfaces.request import InferenceRequest
from epp.scheduling.scheduler import Scheduler
from tests.support.pool import make_table

PATH = "/v1/chat/completions"


class Picker:
    """The stages of a decision, run as the director runs them."""

    def __init__(self, table: EndpointTable) -> None:
        self.table = table
        self.graph: PluginGraph = load_graph("", Handle(table))
        self.scheduler = Scheduler(self.graph)
        self.bookings: list[Booking] = []

    def pick(self, text: str) -> str:
        """Name of the endpoint a prompt is sent to; the request stays in flight."""
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
        parsed = self.graph.parser_for(PATH).parse(Headers([]), PATH, body)
        request = InferenceRequest("id", PATH, Headers([]), body, parsed, 0.0)
        candidates = self.table.all()
        for producer in self.graph.producers:
            producer.produce(request, candidates)
        result = self.scheduler.schedule(request, candidates)
        for plugin in self.graph.pre_requests:
            plugin.pre_request(request, result, {})
        self.bookings.append(self.table.book(result.endpoints[0]))
        return result.endpoints[0].spec.name


def test_a_burst_of_distinct_prompts_spreads_within_one_scrape_interval():
    picker = Picker(make_table(8))
    counts = Counter(picker.pick(f"{i} " * 300) for i in range(1000))
    assert max(counts.values()) == min(counts.values()) == 125


def test_a_repeated_prompt_goes_back_to_where_it_was():
    picker = Picker(make_table(8))
    first = picker.pick("long " * 300)
    for i in range(7):
        picker.pick(f"{i} " * 300)
    assert picker.pick("long " * 300) == first


def test_one_waiting_request_does_not_outweigh_a_cached_prompt():
    table = make_table(2)
    picker = Picker(table)
    first = picker.pick("long " * 300)
    assert table.unseen.max() == 1.0
    assert picker.pick("long " * 300 + "and more") == first


def test_a_fuller_cache_is_avoided():
    table = make_table(3, kv_usage=[0.9, 0.5, 0.8])
    assert Picker(table).pick("x") == "e1"
