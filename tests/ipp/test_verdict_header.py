"""Clients are told which guardrails fired on their requests, where an operator wants that."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.config.problems import ConfigErrors
from ipp.guardrails.policies import Policies
from ipp.guardrails.verdicts import Verdict
from ipp.plugins.processors.guardrails import told
from ipp.policies import PolicyHolder
from tests.support.processors import Rig, headers_of

RULES: list[dict[str, Any]] = [
    {"name": "mail", "type": "pii", "mode": "mask", "parameters": {"entities": ["email"]}},
    {"name": "words", "type": "keywords", "mode": "flag", "parameters": {"words": ["zebra"]}},
]


def rig_of(**parameters: Any) -> Rig:
    spec = msgspec.convert({"rules": RULES}, GuardrailPolicySpec)
    holder = PolicyHolder(random.Random(1))
    holder.put(Policies([("house", spec)]), ["house"], "1")
    lists = {"request": [{"pluginRef": "guardrails"}], "response": [{"pluginRef": "guardrails"}]}
    config = {
        "plugins": [{"type": "guardrails", "parameters": parameters}],
        "profiles": [{"name": "default", "plugins": lists}],
    }
    return Rig(config, holder)


def fired(rig: Rig, text: str) -> dict[str, str]:
    rig.ask({"model": "m", "messages": [{"role": "user", "content": text}]})
    return headers_of(rig.answer(("content-type", "application/json")))


def test_rules_are_named_with_what_they_did_and_never_what_they_found() -> None:
    rig = rig_of(verdictHeader="X-Guardrails")
    assert fired(rig, "a zebra, a@example.org, b@example.org and a zebra") == {
        "x-guardrails": "house/words=flag, house/mail=mask"
    }
    assert fired(rig, "hello") == {}


def test_nobody_is_told_without_the_header() -> None:
    assert fired(rig_of(), "a zebra") == {}


def test_a_name_that_is_no_headers_is_refused() -> None:
    with pytest.raises(ConfigErrors) as caught:
        rig_of(verdictHeader="x y")
    assert [str(error) for error in caught.value.errors] == [
        "plugins[0].parameters.verdictHeader: 'x y' is no name of a header"
    ]


def test_as_many_are_named_as_a_header_has_room_for() -> None:
    verdicts = [
        Verdict(policy=f"p{at:04}", rule="r" * 40, type="t", kind="k", stage="request", action="flag")
        for at in range(200)
    ]
    text = told(verdicts)
    assert len(text) <= 4096
    names = text.split(", ")
    assert names == [f"p{at:04}/{'r' * 40}=flag" for at in range(len(names))]
    assert len(names) == 77
