"""A payload processor's summaries: seconds as differences, and counts since something came into force."""

from __future__ import annotations

import random

from dataplane.errors import BadRequestError, InternalError
from dataplane.extproc.transport_metrics import TransportMetrics
from dataplane.telemetry.summary import MAX_POLICIES, PolicyCounts
from ipp.guardrails.policies import Policies
from ipp.guardrails.verdicts import Verdict
from ipp.metrics import IppMetrics
from ipp.policies import PolicyHolder
from ipp.telemetry import Summariser
from ipp.verdict_log import VerdictLog
from tests.support.clock import ManualClock

NOTHING = Policies(())


class Processor:
    """The parts that a summary is made of."""

    def __init__(self) -> None:
        self.metrics = IppMetrics("1.2.3")
        self.holder = PolicyHolder(random.Random(1))
        self.verdicts = VerdictLog(self.metrics, "edge", "")
        self.transport = TransportMetrics()
        self.clock = ManualClock()
        self.revision, self.ready = "edge/1@abc", True
        self.summarise = Summariser(
            "i-1",
            "edge",
            self.metrics,
            self.holder,
            self.verdicts,
            self.transport,
            lambda: self.revision,
            lambda: self.ready,
            self.clock,
        )

    def serves(self, count: int) -> None:
        for _ in range(count):
            self.metrics.success.inc()
            self.metrics.processing.observe(0.0015)

    def blocks(self, *policies: str, action: str = "block") -> None:
        self.verdicts.tell(
            "r",
            "",
            "m",
            "",
            [
                Verdict(policy=name, rule="w", type="keywords", kind="word 1", stage="request", action=action)  # type: ignore[arg-type]
                for name in policies
            ],
        )
        if action == "block":
            self.metrics.rejected(BadRequestError("no"))


def test_a_second_is_the_difference_of_two_looks() -> None:
    processor = Processor()
    processor.serves(3)
    processor.transport.streams_opened, processor.transport.streams_closed = 9, 7
    processor.metrics.rejected(InternalError("a defect"))
    processor.metrics.answer_refused(BadRequestError("withheld"))
    processor.metrics.answer_refused(InternalError("unreadable"))
    processor.blocks("house")
    processor.blocks("house", action="flag")
    processor.clock.advance(2)
    first = processor.summarise()
    assert (first.worker, first.processor, first.version, first.ready) == ("i-1", "edge", "1.2.3", True)
    assert (first.interval_s, first.inflight, first.revision) == (2, 2, "edge/1@abc")
    assert (first.requests, first.errors, first.refused, first.blocked) == (5, 2, 2, 1)
    assert first.latency_p50 is not None
    assert 0.001 < first.latency_p50 <= 0.002
    processor.clock.advance(1)
    processor.ready = False
    second = processor.summarise()
    assert (second.requests, second.errors, second.blocked, second.ready) == (0, 0, 0, False)
    assert (second.latency_p50, second.revision_requests, second.revision_errors) == (None, 5, 2)


def test_counts_begin_anew_with_a_configuration() -> None:
    processor = Processor()
    processor.serves(3)
    processor.summarise()
    processor.revision = "edge/2@def"
    processor.serves(4)
    processor.blocks("house")
    found = processor.summarise()
    assert (found.revision, found.revision_requests, found.revision_errors) == ("edge/2@def", 5, 0)
    assert found.revision_blocked == 1


def test_each_policy_is_counted_since_its_revision_is_in_force() -> None:
    processor = Processor()
    put = processor.holder.put
    put(NOTHING, ["a", "b"], "7.x", None, {"a": 1, "b": 1})
    processor.serves(3)
    processor.blocks("a", "b")
    found = processor.summarise()
    assert (found.policies_version, found.policies_total) == ("7.x", 2)
    assert list(found.policies) == [PolicyCounts("a", 1, 4, 0, 1), PolicyCounts("b", 1, 4, 0, 1)]
    put(NOTHING, ["a", "b", "c"], "8.x", None, {"a": 1, "b": 2, "c": 1})
    processor.serves(1)
    processor.blocks("b")
    found = processor.summarise()
    assert list(found.policies) == [
        PolicyCounts("b", 2, 2, 0, 1),
        PolicyCounts("c", 1, 2, 0, 0),
        PolicyCounts("a", 1, 6, 0, 1),
    ]
    put(NOTHING, ["b"], "9.x", None, {"b": 2})
    processor.summarise()
    put(NOTHING, ["a", "b"], "10.x", None, {"a": 1, "b": 2})
    assert list(processor.summarise().policies) == [
        PolicyCounts("a", 1, 0, 0, 0),
        PolicyCounts("b", 2, 2, 0, 1),
    ]


def test_of_many_policies_those_are_told_that_came_last() -> None:
    processor = Processor()
    names = [f"p-{number:03}" for number in range(MAX_POLICIES + 10)]
    processor.holder.put(NOTHING, names, "7.x", None, dict.fromkeys(names, 1))
    processor.summarise()
    processor.holder.put(NOTHING, names, "8.x", None, dict.fromkeys(names, 1) | {names[-1]: 2})
    found = processor.summarise()
    assert (found.policies_total, len(found.policies)) == (MAX_POLICIES + 10, MAX_POLICIES)
    assert found.policies[0] == PolicyCounts(names[-1], 2)
