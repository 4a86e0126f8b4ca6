"""The ipp benchmark: it drives whole exchanges, and holds its figures against what is promised."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from benchmarks.baseline_passing import Passing
from benchmarks.envoy_config import Mode
from benchmarks.extproc_plan import ExtProcOptions, ExtProcResult, Measurement, Server, Variant
from benchmarks.ipp import IppOptions, IppResult, chat, complaints, handler, policy, render, run
from benchmarks.ipp_process import CONFIG, OTHERS_POLICY
from benchmarks.machine import describe_machine
from cli.main import main
from dataplane.config.document_files import PlacedDocument
from dataplane.extproc.exchange import Ending, HttpRequest, HttpResponse
from dataplane.headers import Headers
from ipp.pipeline import judging_handle, load_pipeline
from ipp.policies import read_policy
from ipp.registry import REGISTRY
from tests.benchmarks.test_extproc_report import measurement

SMALL = IppOptions(
    body_bytes=300, prompt_bytes=400, messages=4, keywords=3, patterns=2, events=10, rounds=4, repeat=0
)
SERVERS = (Server.PASSING, Server.IPP, Server.IPP_OTHERS)


def through_envoy(*rounds: tuple[float, float, float]) -> ExtProcResult:
    """CPU microseconds per request of passing on, of no policy, and of a policy for others, by round."""
    options = ExtProcOptions(
        paced_rate=0, large_body_bytes=0, sse_chunks=0, servers=SERVERS, modes=(Mode.FULL_DUPLEX,)
    )
    (scenario,) = options.scenarios()
    taken: list[Measurement] = []
    for number, costs in enumerate(rounds):
        for server, cost in zip(SERVERS, costs, strict=True):
            one = measurement(scenario, Variant(Server.EPP, Mode.FULL_DUPLEX), number)
            cpu_s = {"server": cost * one.requests / 1e6}
            taken.append(msgspec.structs.replace(one, server=server, cpu_s=cpu_s))
    return ExtProcResult(describe_machine(), "1.0", options, taken, None, None)


def result(*costs: float, rounds: ExtProcResult | None) -> IppResult:
    return IppResult(describe_machine(), SMALL, 10.0, 10.5, 12.0, *costs, rounds)


def test_a_small_run_measures_everything_without_a_defect() -> None:
    found = run(SMALL)
    assert min(found.bare_us, found.no_policy_us, found.others_policy_us) > 0
    assert min(found.prompt_us, found.spread_us, found.chunk_us) > 0
    assert found.through_envoy is None
    table = render(found, judged=False)
    assert "policy over 400 B of prompt in 4 messages" in table
    assert "MISSED" not in table


def test_the_policy_is_of_the_size_that_is_asked_for_and_holds_for_its_model_alone() -> None:
    spec = policy(SMALL)
    words, patterns, _ = (rule.parameters for rule in spec.rules)
    assert (len(words["words"]), len(patterns["patterns"])) == (3, 2)
    assert spec.models == ["guarded"]
    assert handler([("bench", spec)]).pipeline.needs_request_body


def test_a_spread_prompt_says_the_same_in_so_many_messages() -> None:
    body = json.loads(chat("m", "0123456789", 4))
    assert [message["content"] for message in body["messages"]] == ["012", "345", "678", "9"]


def test_processors_are_compared_with_a_server_that_passes_on_within_a_round() -> None:
    found = result(1.0, 1.0, 1.0, rounds=through_envoy((10, 11, 12), (100, 105, 130), (50, 100, 55)))
    assert found.against_passing(Server.IPP) == pytest.approx(1.1)
    assert found.against_passing(Server.IPP_OTHERS) == pytest.approx(1.2)


def test_what_is_over_its_limit_is_complained_of() -> None:
    good = result(2999.0, 2999.0, 99.0, rounds=through_envoy((100, 109, 109)))
    assert complaints(good) == []
    bad = result(3001.0, 3002.0, 101.0, rounds=through_envoy((100, 120, 130)))
    assert complaints(bad) == [
        "no policy / passing on, CPU per request: 1.20, promised at most 1.1",
        "policy over 400 B of prompt, µs: 3,001.00, promised at most 3000",
        "policy over 400 B of prompt in 4 messages, µs: 3,002.00, promised at most 3000",
        "policy per event of a stream, µs: 101.00, promised at most 100",
    ]
    assert render(bad).count("MISSED") == 4


def test_what_was_not_measured_is_not_as_promised() -> None:
    found = complaints(result(1.0, 1.0, 1.0, rounds=None))
    assert found[0] == "no policy / passing on, CPU per request: -, promised at most 1.1"


def test_the_processor_is_started_with_guardrails_and_a_policy_that_can_be_read() -> None:
    pipeline = load_pipeline(json.dumps(CONFIG).encode(), judging_handle(), REGISTRY)
    assert [step.plugin.name.type for step in pipeline.profiles["default"].request] == ["guardrails"]
    problems: list[Any] = []
    read = read_policy(PlacedDocument("others", OTHERS_POLICY), problems)
    assert read is not None, problems
    assert (read[0], read[1].models) == ("others", ["guarded"])


def test_the_yardstick_collects_requests_and_changes_nothing() -> None:
    exchange = Passing()
    request = HttpRequest(Headers(()), b"{}", None)
    decision = exchange.on_request(request, lambda _: None)
    assert (decision.set_headers, decision.body, exchange.needs_request_body) == ((), None, True)
    assert exchange.on_response_headers(HttpResponse(Headers(()), 200, False, None)) is decision
    exchange.on_response_chunk(b"x", True)
    exchange.on_end(Ending.NATURAL)


@pytest.mark.integration
def test_a_processor_and_the_yardstick_are_measured_behind_envoy(tmp_path, capsys) -> None:
    figures = tmp_path / "figures.json"
    small = ["--prompt-bytes=400", "--keywords=3", "--patterns=2", "--events=10", "--rounds=4"]
    arguments = [*small, "--repeat=1", "--seconds=0.5", "--warmup-s=0.2", f"--json={figures}"]
    assert main(["bench", "ipp", *arguments]) == 0
    taken = json.loads(figures.read_text())["result"]["through_envoy"]["measurements"]
    assert [one["server"] for one in taken] == ["passing", "ipp", "ipp-others"]
    for one in taken:
        assert one["errors"] == {}
        assert one["requests"] > 0
        assert one["ext_proc"]["streams_failed"] == 0
    assert "passing/full-duplex" in capsys.readouterr().out
