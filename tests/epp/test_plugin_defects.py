"""A plugin that fails where none may costs its request, and leaves a record that says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pytest

from dataplane.extproc.exchange import Ending
from dataplane.plugin.base import PluginInfo, PluginParams
from epp.decisions import MAX_TEXT
from epp.explain.policy import ExplainPolicy
from epp.handler import PickerExchange
from epp.interfaces.endpoint import Candidates
from epp.interfaces.request import InferenceRequest
from epp.interfaces.scheduling import ProfileResult, SchedulingProfile, SchedulingResult
from tests.support.plugins import Base
from tests.support.request_path import Rig, destination, http_request
from tests.support.request_plugins import REQUEST_REGISTRY


class FaultyParams(PluginParams, frozen=True):
    """Where it fails, and with which words."""

    at: str = ""
    words: str = "out of luck"


class Faulty(Base):
    """Fails at one stage with an exception that is no ``RequestError``."""

    info: ClassVar = PluginInfo("faulty", FaultyParams)

    def process_request_headers(self, request: InferenceRequest) -> None:
        self._pass("request headers")

    def screen(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        self._pass("screening")
        return candidates

    def admit(self, request: InferenceRequest, candidates: Candidates) -> str | None:
        self._pass("admission")
        return None

    def pre_request(
        self, request: InferenceRequest, result: SchedulingResult, set_headers: dict[str, str]
    ) -> None:
        self._pass("pre-request")
        if self.params.at == "answer":
            set_headers["x-odd"] = "\ud800"

    def _pass(self, stage: str) -> None:
        if stage == self.params.at:
            raise ZeroDivisionError(self.params.words)


FAULTY = REQUEST_REGISTRY.extended({"faulty": f"{__name__}:Faulty"})


def rig_of(monkeypatch: pytest.MonkeyPatch, at: str, words: str = "out of luck", explain: str = "off") -> Rig:
    monkeypatch.setattr("tests.support.request_path.REQUEST_REGISTRY", FAULTY)
    plugins = f"- {{type: queue-scorer}}\n- {{type: faulty, parameters: {{at: {at}, words: '{words}'}}}}\n"
    return Rig(plugins, explain=ExplainPolicy.of(0.0, explain))


def broken_off(rig: Rig, *headers: tuple[str, str]) -> PickerExchange:
    """An exchange whose request a plugin's defect ended, as a session ends it."""
    exchange = rig.handler.open()
    with pytest.raises((ZeroDivisionError, UnicodeEncodeError)):
        exchange.on_request(http_request(("x-request-id", "r1"), *headers), lambda decision: None)
    exchange.on_end(Ending.ERROR)
    return exchange


@pytest.mark.parametrize("explain", ["off", "full"])
@pytest.mark.parametrize(
    ("at", "stage", "model"),
    [
        ("request headers", "parse", ""),
        ("screening", "screening", "m"),
        ("admission", "admission", "m"),
        ("pre-request", "pre-request", "m"),
    ],
)
def test_a_defect_is_recorded_with_its_stage(
    monkeypatch: pytest.MonkeyPatch, at: str, stage: str, model: str, explain: str
) -> None:
    rig = rig_of(monkeypatch, at, explain=explain)
    broken_off(rig, ("x-pointsman-explain", "true"))
    (found,) = rig.decisions.find("r1")
    assert (found["stage"], found["model"]) == (stage, model)
    assert found["error"] == "Internal: ZeroDivisionError: out of luck"
    assert (found["response"]["status"], found["response"]["ending"]) == (500, "error")
    assert rig.table.inflight.sum() == 0


def test_a_defect_after_the_booking_is_recorded_once_and_the_booking_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = rig_of(monkeypatch, "answer")
    broken_off(rig)
    (found,) = rig.decisions.find("r1")
    assert (found["stage"], found["response"]["status"]) == ("pre-request", 500)
    assert found["error"].startswith("Internal: UnicodeEncodeError: ")
    assert found["response"]["ending"] == "error"
    assert rig.table.inflight.sum() == 0


def test_what_an_exception_says_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(monkeypatch, "admission", "x" * 100_000)
    broken_off(rig)
    (found,) = rig.decisions.find("r1")
    assert len(found["error"]) == MAX_TEXT


class Trespasser(Base):
    """A profile handler that sends every request to the last endpoint, candidate or not."""

    info: ClassVar = PluginInfo("trespasser")

    def profiles(
        self,
        request: InferenceRequest,
        available: Mapping[str, SchedulingProfile],
        results: Mapping[str, ProfileResult | None],
    ) -> Sequence[SchedulingProfile]:
        return () if results else tuple(available.values())

    def process(
        self, request: InferenceRequest, results: Mapping[str, ProfileResult | None]
    ) -> SchedulingResult:
        found = {name: result for name, result in results.items() if result is not None}
        last = self.handle.table.all()
        for result in found.values():
            result.candidates, result.endpoints = last, [last.endpoints[-1]]
            result.totals = np.zeros(len(last))
            result.scorers = []
        return SchedulingResult(found, next(iter(found)))


def test_nothing_is_held_by_an_endpoint_that_was_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = REQUEST_REGISTRY.extended({"trespasser": f"{__name__}:Trespasser"})
    monkeypatch.setattr("tests.support.request_path.REQUEST_REGISTRY", registry)
    rig = Rig(
        "- type: trespasser\n"
        "- {type: picky-screener, parameters: {keep: [e0]}}\n"
        "- {type: prefix-cache-scorer}\n"
        "schedulingProfiles:\n"
        "- {name: default, plugins: [{pluginRef: prefix-cache-scorer}]}\n"
    )
    prompt = b'{"model": "m", "prompt": "%b"}' % (b"hello " * 100)
    for _ in range(2):
        exchange, answer = rig.ask(("x-request-id", "r1"), body=prompt)
        assert destination(answer) == "10.0.0.2:8000"
        exchange.on_end(Ending.NATURAL)
    found = next(rig.decisions.find("r1"))
    assert found["prefix"]["matchedBlocks"] == 0.0
    assert found["prefix"]["totalBlocks"] > 0
    assert found["error"] == ""
