"""Which rules hold for which traffic; rules of documents at work."""

from __future__ import annotations

import json

import msgspec
import pytest

from dataplane.config.decode import decode_struct
from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.errors import ConfigError
from ipp.guardrails import policies as module
from ipp.guardrails.policies import Policies
from tests.support.guardrail_streams import encoded, events, read_stream, whole


def spec(*rules, **more):
    return msgspec.convert({"rules": list(rules), **more}, GuardrailPolicySpec)


def word(name, word, **more):
    return {"name": name, "type": "keywords", "parameters": {"words": [word]}, **more}


def names(policies, *traffic):
    found = policies.select(*traffic)
    return found and [(rule.policy, rule.rule.name) for rule in found.rules]


def mistakes(raw):
    problems = []
    found = decode_struct(raw, GuardrailPolicySpec, "spec", problems)
    if found is not None:
        Policies([("p", found)], problems=problems)
    return [(problem.path, str(problem.message).partition(":")[0].partition(";")[0]) for problem in problems]


def test_every_pattern_at_fault_is_told():
    rule = {"name": "a", "type": "patterns", "parameters": {"patterns": ["(?=a)b", "ok", "a*", "["]}}
    at = "p.spec.rules[0].parameters.patterns"
    assert mistakes({"rules": [rule]}) == [
        (f"{at}[0]", "is no pattern of RE2"),
        (f"{at}[2]", "finds the empty text, and so everything"),
        (f"{at}[3]", "is no pattern of RE2"),
    ]
    rule = {**rule, "stages": ["stream"], "parameters": {"patterns": ["a+", "ok", "b{600}"]}}
    assert [path for path, _ in mistakes({"rules": [rule]})] == [f"{at}[0]", f"{at}[2]"]
    rule = {
        **rule,
        "type": "allowPatterns",
        "stages": ["request"],
        "parameters": {"patterns": ["(", ".*", ")"]},
    }
    assert [path for path, _ in mistakes({"rules": [rule]})] == [f"{at}[0]", f"{at}[2]"]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"forced": {"seed": 1}, "forbidden": ["seed"]}, ("forced.seed", "is forbidden as well")),
        ({"forced": {"n": 2}, "ranges": {"n": {"max": 1}}}, ("forced.n", "is outside its range")),
        ({"forced": {"n": "2"}, "ranges": {"n": {"min": 1}}}, ("forced.n", "is outside its range")),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters, problem):
    rule = {"name": "a", "type": "parameters", "mode": "mask", "parameters": parameters}
    assert mistakes({"rules": [rule]})[0] == (f"p.spec.rules[0].parameters.{problem[0]}", problem[1])
    good = {"forced": {"seed": 1, "n": 1}, "ranges": {"n": {"min": 1, "max": 1}}, "forbidden": ["stop"]}
    assert mistakes({"rules": [{**rule, "parameters": good}]}) == []


def test_lists_are_called_what_they_list():
    rules = [word("a", "x")]
    assert mistakes({"rules": rules, "tenants": []}) == [("spec.tenants", "names no tenant")]
    assert mistakes({"rules": rules, "pools": ["a", "a"]}) == [("spec.pools", "names a pool twice")]


def test_traffic_that_no_policy_is_for_has_none():
    assert Policies([]).select("t", "m", "p") is None
    policies = Policies([("a", spec(word("x", "cat"), tenants=["t-*"], models=["m"], pools=["p", "q*"]))])
    assert names(policies, "t-1", "m", "q1") == [("a", "x")]
    for traffic in [("t", "m", "p"), ("t-", "m2", "p"), ("t-", "m", "pp"), ("", "m", "p")]:
        assert names(policies, *traffic) is None


def test_all_policies_that_match_hold_in_their_order_and_of_rules_with_one_name_the_first():
    policies = Policies(
        [
            ("c", spec(word("x", "c"), word("z", "c"))),
            ("b", spec(word("x", "b"), word("y", "b"), priority=1)),
            ("a", spec(word("y", "a"), word("w", "a"))),
            ("off", spec(word("o", "o"), enabled=False, priority=9)),
        ]
    )
    assert names(policies, "", "", "") == [("b", "x"), ("b", "y"), ("a", "w"), ("c", "z")]


def test_selections_are_remembered_up_to_a_number(monkeypatch):
    monkeypatch.setattr(module, "MAX_SELECTIONS", 3)
    policies = Policies([("a", spec(word("x", "cat")))])
    first = policies.select("t", "m", "p")
    for number in range(10):
        assert policies.select(f"t{number}", "m", "p") is first
    assert len(policies._selections) <= 3


def test_all_mistakes_are_told_and_the_other_rules_hold():
    wide = {
        "name": "wide",
        "type": "patterns",
        "stages": ["stream"],
        "parameters": {"patterns": ["ok", "a+"]},
    }
    documents = [
        ("a", spec(wide, word("x", "cat"), {"name": "bad", "type": "pii", "parameters": {"entities": 1}}))
    ]
    problems: list[ConfigError] = []
    policies = Policies(documents, problems=problems)
    assert [problem.path for problem in problems] == [
        "a.spec.rules[0].parameters.patterns[1]",
        "a.spec.rules[2].parameters.entities",
    ]
    assert names(policies, "", "", "") == [("a", "x")]
    with pytest.raises(ConfigError, match=r"^a.spec.rules\[0\]"):
        Policies(documents)


def test_rules_that_ask_are_left_out_when_nobody_can_be_asked():
    hook = {"name": "hook", "type": "webhook", "parameters": {"url": "http://127.0.0.1:1/"}}
    assert names(Policies([("a", spec(hook, word("x", "cat")))]), "", "", "") == [("a", "x")]


def test_documents_at_work_on_a_request_an_answer_and_a_stream():
    stages = ["request", "response", "stream"]

    def mask(name, kind, **parameters):
        return {"name": name, "type": kind, "mode": "mask", "stages": stages, "parameters": parameters}

    policies = Policies(
        [
            (
                "a",
                spec(
                    mask("pii", "pii", entities=["email", "card"]),
                    word("stop", "zebra", stages=stages),
                    mask("codes", "patterns", patterns=["ID-[0-9]{4}"]),
                ),
            )
        ]
    )
    compiled = policies.select("t", "m", "p")
    body = json.dumps({"messages": [{"role": "user", "content": "I am ann@example.com, ID-1234"}]}).encode()
    outcome = compiled.check_request(body)
    assert json.loads(outcome.body)["messages"][0]["content"] == "I am <EMAIL_1>, ***"
    text = "Hello <EMAIL_1>, bob@example.com has card 4111 1111 1111 1111 and ID-99999." + " And so on." * 60
    new = "Hello ann@example.com, [EMAIL] has card [CARD] and ***9." + " And so on." * 60
    answer = compiled.check_response(json.dumps(whole("chat", {"content 0": text})).encode(), outcome.vault)
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == new
    guard = compiled.open_stream("sse", outcome.vault)
    came = encoded(events("chat", [("content 0", char) for char in text]), "\n", ascii_only=True)
    sent = [guard.feed(chunk, chunk is came[-1]) for chunk in came]
    assert read_stream("chat", b"".join(sent)) == {"content 0": new}
    assert compiled.check_request(json.dumps({"prompt": ["a ZEBRA"]}).encode()).code == "guardrail_keywords"


def test_a_schema_is_for_what_is_said_alone():
    rule = {
        "name": "s",
        "type": "jsonSchema",
        "stages": ["response"],
        "parameters": {"schema": {"type": "object"}},
    }
    compiled = Policies([("a", spec(rule))]).select("", "", "")
    said = whole("chat", {"content 0": "{}", "content 1": "{}", "reasoning 0": "thinking", "args 0": "[1]"})
    assert compiled.check_response(json.dumps(said).encode()).action == "pass"
    said["choices"][1]["message"]["content"] = "[]"
    assert compiled.check_response(json.dumps(said).encode()).param == "choices[1].message.content"
