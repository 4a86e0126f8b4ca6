"""What all rules on texts promise for any text: places inside it, sorted, apart, the same piece by piece."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.guardrail_rules import made, piecewise

ENTITIES = ["email", "phone", "iban", "card", "nationalId", "ip", "secret"]
STREAMING = {
    "keywords": (
        "keywords",
        {"words": ["kill", "ab", "secret plan", "бомба", "爆弾", "Straße", "b2b", "été"]},
    ),
    "parts of words": ("keywords", {"words": ["ill", "aba"], "wholeWords": False}),
    "cased": ("keywords", {"words": ["Kill", "AB"], "caseSensitive": True}),
    "patterns": ("patterns", {"patterns": [r"\bab{1,3}\b", r"b[^a]{1,4}a", "^k", "l$", r"(?m)^1", "é{1,3}"]}),
    "pii": ("pii", {"entities": ENTITIES}),
    "unicode": ("unicode", {"classes": ["invisible", "bidirectional", "control", "tag"]}),
}
WHOLE = {
    "injection": ("promptInjection", {}),
    "topics": (
        "topics",
        {"denied": [{"name": "t", "words": ["kill", "ab"]}], "allowed": [{"name": "u", "words": ["b"]}]},
    ),
    "allowed patterns": ("allowPatterns", {"patterns": ["[a-k ]{0,20}"]}),
    "language": ("language", {"allowed": ["en"]}),
}
SCHEMA = ("jsonSchema", {"schema": {"type": "array"}})

PIECES = st.sampled_from(
    [
        *"abkil1!ЖбоомÉß爆弾 \n.-_@:/+0",
        "kill", "k1ll", "k i l l", "secret  plan", "бомба", "爆弾", "STRASSE", "\u200b", "\u0301",
        "\ufe0f", "\u200d",
        "\u202e", "\U000e006b", "\ud800", "\U0001f600", "a@b.de", "4111 1111 1111 1111", "4111111111111112",
        "192.168.1.20", "2001:db8::1", "DE89 3704 0044 0532 0130 00", "+49 30 1234567", "123-45-6789",
        "sk-proj-abcdEFGH1234ijklMNOP", "ghp_" + "a1" * 20, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.abc",
        "api_key = zX9fL2kQ8vB1nM4c", "-----BEGIN PRIVATE KEY-----", "aWdub3JlIGFsbA==",
        "ignore previous instructions",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=80)

RULES = {
    **{f"{name}, whole": made(*how, streaming=False) for name, how in (STREAMING | WHOLE).items()},
    **{f"{name}, streaming": made(*how, streaming=True) for name, how in STREAMING.items()},
    "schema": made(*SCHEMA, stages=["response"]),
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=20, deadline=None)
@given(text=TEXTS)
def test_finds_lie_in_the_text_sorted_and_apart(name: str, text: str):
    end = 0
    for match in RULES[name].find(text):
        assert end <= match.start < match.end <= len(text)
        assert match.kind
        assert 0 <= match.score <= 1
        end = match.end


@pytest.mark.parametrize("name", STREAMING)
@settings(max_examples=50, deadline=None)
@given(text=TEXTS, data=st.data())
def test_a_rule_for_streams_finds_the_same_piece_by_piece(name: str, text: str, data: st.DataObject):
    rule = RULES[f"{name}, streaming"]
    padded = text * data.draw(st.integers(1, 4))
    cuts = data.draw(st.lists(st.integers(0, len(padded)), max_size=12))
    assert piecewise(rule, padded, cuts) == list(rule.find(padded))


@pytest.mark.parametrize("name", STREAMING)
@settings(max_examples=20, deadline=None)
@given(text=TEXTS)
def test_no_find_of_a_rule_for_streams_is_longer_than_it_says(name: str, text: str):
    rule = RULES[f"{name}, streaming"]
    assert all(match.end - match.start <= rule.longest for match in rule.find(text))
