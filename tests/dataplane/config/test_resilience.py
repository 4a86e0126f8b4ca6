"""The section ``resilience``: defaults, and mistakes with their paths."""

import pytest
import yaml

from dataplane.config.encode import encode_struct
from dataplane.config.epp import load_epp_config
from dataplane.config.problems import ConfigErrors
from dataplane.config.resilience import EjectionSpec, ResilienceSpec, SlowStartSpec

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def problems(section: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load_epp_config(HEAD + section)
    return [str(error) for error in caught.value.errors]


def test_without_the_section_its_defaults_apply():
    config, warnings = load_epp_config(HEAD)
    assert config.resilience == ResilienceSpec()
    assert config.resilience.ejection.enabled
    assert config.resilience.slow_start.enabled
    assert config.resilience.fallback_endpoints == 1
    assert warnings == []


def test_every_value_can_be_set():
    config, _ = load_epp_config(
        HEAD
        + """
resilience:
  ejection:
    enabled: false
    consecutiveFailures: 3
    failureShare: 0.25
    minRequests: 10
    window: 1m
    baseTime: 500ms
    factor: 1.5
    maxTime: 10m
    jitter: 0
    maxEjectedShare: 0.3
  slowStart: {enabled: false, window: 1m30s, initialShare: 0.2}
  fallbackEndpoints: 3
"""
    )
    assert config.resilience == ResilienceSpec(
        ejection=EjectionSpec(
            enabled=False,
            consecutive_failures=3,
            failure_share=0.25,
            min_requests=10,
            window=60.0,
            base_time=0.5,
            factor=1.5,
            max_time=600.0,
            jitter=0.0,
            max_ejected_share=0.3,
        ),
        slow_start=SlowStartSpec(enabled=False, window=90.0, initial_share=0.2),
        fallback_endpoints=3,
    )
    written = HEAD + yaml.safe_dump({"resilience": encode_struct(config.resilience)})
    assert load_epp_config(written)[0].resilience == config.resilience


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "resilience: {ejections: {}}",
            ['resilience.ejections: unknown field (did you mean "ejection"?)'],
        ),
        (
            "resilience: {ejection: {consecutiveFailure: 3}}",
            ['resilience.ejection.consecutiveFailure: unknown field (did you mean "consecutiveFailures"?)'],
        ),
        (
            "resilience: {fallbackEndpoints: 0}",
            ["resilience.fallbackEndpoints: expected int >= 1"],
        ),
        (
            "resilience: {fallbackEndpoints: 17, ejection: {failureShare: 0, jitter: 0.6}}",
            [
                "resilience.fallbackEndpoints: expected int <= 16",
                "resilience.ejection.failureShare: expected float > 0.0",
                "resilience.ejection.jitter: expected float <= 0.5",
            ],
        ),
        (
            "resilience: {ejection: {baseTime: 1m, maxTime: 30s}}",
            ["resilience.ejection.maxTime: must be at least baseTime and at most 24h"],
        ),
        (
            "resilience: {ejection: {window: 0s}, slowStart: {window: 25h}}",
            [
                "resilience.ejection.window: must be more than 0s and at most 24h",
                "resilience.slowStart.window: must be more than 0s and at most 24h",
            ],
        ),
        (
            "resilience: {slowStart: {initialShare: .nan}}",
            ["resilience.slowStart.initialShare: expected float > 0.0"],
        ),
        ("resilience: 3", ["resilience: expected a mapping, got a number"]),
    ],
)
def test_mistakes_are_named_with_their_path(section: str, expected: list[str]):
    assert problems(section) == expected
