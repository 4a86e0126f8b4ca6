"""The ipp benchmark: it drives whole exchanges, and holds its figures against what is promised."""

from __future__ import annotations

from benchmarks.ipp import IppOptions, IppResult, complaints, handler, policy, render, run
from benchmarks.machine import describe_machine

SMALL = IppOptions(body_bytes=300, prompt_bytes=400, keywords=3, patterns=2, events=10, rounds=4)


def test_a_small_run_measures_everything_without_a_defect() -> None:
    result = run(SMALL)
    assert min(result.bare_us, result.no_policy_us, result.others_policy_us) > 0
    assert min(result.prompt_us, result.chunk_us) > 0
    table = render(result, judged=False)
    assert "policy over 400 B of prompt" in table
    assert "MISSED" not in table


def test_the_policy_is_of_the_size_that_is_asked_for_and_holds_for_its_model_alone() -> None:
    spec = policy(SMALL)
    words, patterns, _ = (rule.parameters for rule in spec.rules)
    assert (len(words["words"]), len(patterns["patterns"])) == (3, 2)
    assert spec.models == ["guarded"]
    assert handler([("bench", spec)]).pipeline.needs_request_body


def test_what_is_over_its_limit_is_complained_of() -> None:
    good = IppResult(describe_machine(), SMALL, 10.0, 10.5, 12.0, 2999.0, 99.0)
    assert complaints(good) == []
    bad = IppResult(describe_machine(), SMALL, 10.0, 12.0, 12.0, 3001.0, 101.0)
    assert complaints(bad) == [
        "no policy / passing on, CPU per exchange: 1.20, promised at most 1.1",
        "policy over 400 B of prompt, µs: 3001.00, promised at most 3000",
        "policy per event of a stream, µs: 101.00, promised at most 100",
    ]
    assert render(bad).count("MISSED") == 3
