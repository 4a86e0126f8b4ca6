"""One hot prefix at three times what an endpoint computes: it spreads as far as it must, and no further.

The servers are queues that compute a fixed number of prompt tokens per second; time is given, not read.
"""

from __future__ import annotations

import json
from collections import deque

from dataplane.extproc.exchange import HttpRequest
from dataplane.headers import Headers
from epp.director import Admitted, Director
from epp.interfaces.attributes import PREFIX_MATCH
from epp.interfaces.request import ResponseSummary
from epp.metrics import EppMetrics
from tests.support.clock import ManualClock
from tests.support.pool import make_table
from tests.support.request_path import graph_of

PLUGINS = """
- type: prefix-cache-affinity-filter
  parameters: {maxTTFTPenaltyMs: 500, peakPrefillThroughput: 10000}
- type: token-load-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache-affinity-filter}, {pluginRef: token-load-scorer}]
"""
TOKENS_PER_S = 10_000
PROMPT_TOKENS = 1000
BUDGET_S = 0.5
THREEFOLD = 200.0
"""Requests per second whose new tokens are about three times what a server computes."""
HOT = "a system prompt that everybody sends " * 96
"""Some 890 of a prompt's 1000 tokens, at four bytes each."""


class Fleet:
    """Four servers behind a director."""

    def __init__(self) -> None:
        self.table = make_table(4)
        self.clock = ManualClock()
        metrics = EppMetrics(self.table, "pool")
        self.director = Director(self.table, graph_of(PLUGINS, self.table, self.clock), metrics, self.clock)
        self.queues: dict[str, deque[tuple[Admitted, float]]] = {
            endpoint.key: deque() for endpoint in self.table.all().endpoints
        }
        self.sent = 0

    def wait_s(self, key: str) -> float:
        """Seconds until a server has computed what it was given."""
        return sum(left for _, left in self.queues[key]) / TOKENS_PER_S

    def send(self) -> tuple[str, float, bool]:
        """One request: where it went, how much longer its server's queue was than the best one, and
        whether the server had the prefix."""
        self.sent += 1
        prompt = (HOT + f"question {self.sent} ").ljust(PROMPT_TOKENS * 4, ".")
        headers = Headers.of([(":path", "/v1/completions"), (":method", "POST"), ("x-request-id", "r")])
        http = HttpRequest(headers, json.dumps({"model": "m", "prompt": prompt}).encode(), None)
        request, parser = self.director.parse(http)
        admitted = self.director.admit(request, parser, http)
        chosen = admitted.result.endpoints[0]
        extra = self.wait_s(chosen.key) - min(map(self.wait_s, self.queues))
        match = request.get(PREFIX_MATCH)
        assert match is not None
        cached = match.matched.item(match.candidates.endpoints.index(chosen)) * match.block_size
        self.queues[chosen.key].append((admitted, PROMPT_TOKENS - cached))
        return chosen.key, extra, cached > 0

    def compute(self, seconds: float) -> None:
        """Let every server work for a while."""
        self.clock.advance(seconds)
        for queue in self.queues.values():
            budget = seconds * TOKENS_PER_S
            while queue and budget > 0:
                admitted, left = queue.popleft()
                done = min(left, budget)
                budget -= done
                if done < left:
                    queue.appendleft((admitted, left - done))
                    break
                self.director.first_byte(admitted)
                self.director.finish(admitted, ResponseSummary(status=200, ttft_s=0.1))

    def run(self, seconds: float, rate: float) -> list[tuple[str, float, bool]]:
        """Requests at a steady rate."""
        sent = []
        for _ in range(round(seconds * rate)):
            sent.append(self.send())
            self.compute(1 / rate)
        return sent


def test_a_hot_prefix_stays_where_it_is_while_one_server_can_carry_it():
    sent = Fleet().run(10.0, rate=30.0)
    assert len({key for key, _, _ in sent}) == 1


def test_a_hot_prefix_spreads_when_waiting_costs_more_than_the_budget():
    fleet = Fleet()
    sent = fleet.run(10.0, rate=THREEFOLD)
    assert len({key for key, _, _ in sent}) >= 3
    assert max(extra for _, extra, _ in sent) <= BUDGET_S + PROMPT_TOKENS / TOKENS_PER_S
    assert max(map(fleet.wait_s, fleet.queues)) < 2 * BUDGET_S


def test_when_the_load_falls_only_servers_with_the_prefix_are_used():
    fleet = Fleet()
    fleet.run(10.0, rate=THREEFOLD)
    fleet.run(5.0, rate=5.0)
    assert all(hit for _, _, hit in fleet.run(10.0, rate=5.0))
