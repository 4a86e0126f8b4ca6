"""Whatever the text, the rules, the API and the chunks: a stream comes to what a whole answer comes to."""

from __future__ import annotations

import itertools
import json
from functools import cache
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, assume, given, settings

from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.extproc.events import EndBody
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.masking import Vault
from ipp.guardrails.policies import Policies
from tests.support.guardrail_policies import BLOCKED, at_work, expected, policy
from tests.support.guardrail_streams import (
    CHANNELS,
    ONE_BY_ONE,
    encoded,
    events,
    read_stream,
    read_whole,
    whole,
)
from tests.support.json_spellings import cut, cuts

RULES = [
    at_work("cat", r"\bcat\b", 3),
    at_work("pairs", r"a[ab]{0,3}", 4),
    at_work("number", r"\d\d-\d{1,3}", 6, restores=True, kind="email"),
    at_work("odd", '"c|\\\\n|é😀', 2),
    at_work("gone", r"z{2,3}", 3, mode="flag"),
    at_work("stop", r"\bdog{1,3}\b", 5, mode="block"),
    at_work("far", r"12-3.{0,38}?1", 43),
    at_work("mark", r"b\nc", 3, mode="block"),
]
WORDS = [
    "cat",
    "dog",
    "dogg",
    "a",
    "ab",
    "b",
    "c",
    "12-3",
    "1",
    "-",
    " ",
    " ",
    "é😀",
    '"',
    "\\",
    "\n",
    "zz",
    "z",
]
WORDS += ["<EMAIL_1>", "<EMA", "IL_1>", "<", "<<EMAIL_12>", "{", "},[", "\u2028", "x" * 40]

said = st.lists(st.sampled_from(WORDS), max_size=14).map("".join)
values = st.recursive(
    st.one_of(said, st.integers(0, 99), st.sampled_from([True, None, 12.5])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(said, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(said, values, max_size=3).flatmap(
    lambda value: st.sampled_from(
        [
            json.dumps(value),
            json.dumps(value, ensure_ascii=False, indent=1),
            json.dumps(value).replace("a", "\\u0061"),
        ]
    )
)


@st.composite
def answers(
    draw: st.DrawFn, words: st.SearchStrategy[str] = said
) -> tuple[str, dict[str, str], list[tuple[str, str]]]:
    """An API, what is said, and how it comes."""
    api = draw(st.sampled_from(list(CHANNELS)))
    channels = draw(st.lists(st.sampled_from(CHANNELS[api]), min_size=1, unique=True))
    texts = {channel: draw(arguments if channel.startswith("args") else words) for channel in channels}
    pieces = {
        channel: [piece.decode("utf-32-le") for piece in _cut(text, draw(cuts))]
        for channel, text in texts.items()
    }
    order = [channel for channel in channels for _ in pieces[channel]]
    if api not in ONE_BY_ONE:
        order = draw(st.permutations(order))
    taken = {channel: iter(parts) for channel, parts in pieces.items()}
    return api, texts, [(channel, next(taken[channel])) for channel in order]


def _cut(text: str, places: list[int]) -> list[bytes]:
    """A text in pieces of whole code points."""
    size = len(text)
    at = sorted(place % (size + 1) for place in places)
    ends = zip([0, *at], [*at, size], strict=True)
    return [text[start:stop].encode("utf-32-le") for start, stop in ends]


def come_to(rules: Any, channel: str, text: str, names: dict[str, str]) -> tuple[Any, bool]:
    """What a text must come to; of arguments, their value."""
    if not channel.startswith("args"):
        return expected(rules, text, names)
    blocked = False

    def each(value: Any) -> Any:
        nonlocal blocked
        if isinstance(value, dict):
            return [(each(key), each(item)) for key, item in value.items()]
        if isinstance(value, list):
            return [each(item) for item in value]
        bare = value if isinstance(value, str) else json.dumps(value)
        new, ends = expected(rules, bare, names)
        blocked |= ends
        return value if new == bare else new

    return each(json.loads(text)), blocked


def pairs(text: str) -> Any:
    """Arguments as ``come_to`` gives them."""

    def each(value: Any) -> Any:
        return [each(item) for item in value] if isinstance(value, list) else value

    return json.loads(text, object_pairs_hook=lambda found: [(key, each(value)) for key, value in found])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    answers(),
    st.lists(st.sampled_from(range(len(RULES))), unique=True, max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.booleans(),
    cuts,
)
def test_stream_comes_to_what_a_whole_answer_comes_to(answer, chosen, end, ascii_only, has_vault, chunks):
    api, texts, pieces = answer
    rules = [RULES[index] for index in sorted(chosen)]
    vault = Vault()
    names = {}
    if has_vault:
        names = {vault.placeholder("email", 'me"\\\n@x'): 'me"\\\n@x'}
    compiled = policy(*rules)
    wanted = {channel: come_to(rules, channel, text, names) for channel, text in texts.items()}
    sent, was_cut = b"", False
    guard = compiled.open_stream("sse", vault)
    came = b"".join(encoded(events(api, pieces), end, ascii_only=ascii_only))
    if guard is None:
        assert not rules
        assert not has_vault
        return
    parts = cut(came, chunks)
    try:
        for at, chunk in enumerate(parts):
            sent += guard.feed(chunk, at == len(parts) - 1)
    except EndBody as ended:
        sent, was_cut = sent + ended.last, True
    got = read_stream(api, sent)
    assert was_cut == any(blocked for _, blocked in wanted.values())
    unstreamed = compiled.check_response(json.dumps(whole(api, texts)).encode(), vault)
    assert (unstreamed.action == "block") == was_cut
    if was_cut:
        for channel, text in got.items():
            if not channel.startswith("args"):
                assert wanted[channel][0].partition(BLOCKED)[0].startswith(text)
        return
    plain = read_whole(api, json.loads(unstreamed.body))
    for channel, (new, _) in wanted.items():
        if channel.startswith("args"):
            assert pairs(got[channel]) == new
            assert pairs(plain[channel]) == new
        else:
            assert got.get(channel, "") == new
            assert plain[channel] == new
    if all(text == texts[channel] for channel, text in got.items()) and len(texts) == 1 and not has_vault:
        assert sent == came


STAGES = ["response", "stream"]
DOCUMENTED = {
    "words": ("keywords", "mask", {"words": ["secret", "top secret plan"]}),
    "parts": ("keywords", "mask", {"words": ["zebra"], "wholeWords": False}),
    "codes": ("patterns", "mask", {"patterns": ["ID-[0-9]{2,6}", r"(?i)\bkey:? ?[a-z]{1,40}\b"]}),
    "people": ("pii", "mask", {"entities": ["email", "card", "iban", "phone", "ip", "secret"]}),
    "hidden": ("unicode", "mask", {}),
    "never": ("keywords", "block", {"words": ["doomsday"]}),
}
DISGUISED = [
    "secret",
    "s e c r e t",
    "s\u200be\u200bcret",
    "s\u0435cret",
    "SECRET",
    "top",
    " plan",
    "zeb",
    "ra",
]
DISGUISED += [
    "z-e-b-r-a",
    "ID-",
    "12345",
    "key: ",
    "abc",
    "ann@example.com",
    "4111 1111 1111 1111",
    "@",
    " ",
    " ",
]
DISGUISED += [
    "GB82WEST12345698765432",
    ".",
    "\u200d",
    "\u202e",
    "e\u0301",
    "\u0301",
    "10.0.0.1",
    "+49 30 123456",
]
DISGUISED += ["doom", "sday", "x" * 70, " so on" * 30, "1" * 90]
disguised = st.lists(st.sampled_from(DISGUISED), max_size=12).map("".join)


@cache
def documented(names: tuple[str, ...]) -> CompiledPolicy:
    """A policy of these rules."""
    rules = [
        {"name": name, "type": kind, "mode": mode, "stages": STAGES, "parameters": parameters}
        for name, (kind, mode, parameters) in DOCUMENTED.items()
        if name in names
    ]
    return Policies([("a", msgspec.convert({"rules": rules}, GuardrailPolicySpec))]).select("", "", "")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers(disguised), cuts, st.sets(st.sampled_from(list(DOCUMENTED)), min_size=1, max_size=3))
def test_rules_of_documents_say_the_same_of_a_stream_and_of_a_whole_answer(answer, chunks, names):
    api, texts, pieces = answer
    compiled = documented(tuple(sorted(names)))
    guard = compiled.open_stream("sse")
    parts = cut(b"".join(encoded(events(api, pieces), "\n", ascii_only=False)), chunks)
    sent, was_cut = b"", False
    try:
        for at, chunk in enumerate(parts):
            sent += guard.feed(chunk, at == len(parts) - 1)
    except EndBody as ended:
        sent, was_cut = sent + ended.last, True
    whole_answer = compiled.check_response(json.dumps(whole(api, texts)).encode())
    assert (whole_answer.action == "block") == was_cut
    got = read_stream(api, sent)
    if was_cut:
        return
    plain = read_whole(api, json.loads(whole_answer.body))
    for channel in texts:
        if not channel.startswith("args"):
            assert got.get(channel, "") == plain[channel]


FORMS = {
    "text": lambda said: said.encode(),
    "a string": lambda said: json.dumps(said).encode(),
    "of a shape": lambda said: json.dumps({"token": {"id": 5, "text": said}, "more": [said]}).encode(),
}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("catdogz12-3 b", min_size=1, max_size=6), min_size=1, max_size=8),
    st.sampled_from(sorted(FORMS)),
    st.lists(st.sampled_from(range(len(RULES))), unique=True, min_size=1, max_size=3),
    cuts,
)
def test_stream_of_no_known_api_comes_to_what_its_text_comes_to(pieces, form, chosen, chunks):
    assume(not any(new.startswith(old) for old, new in itertools.pairwise(pieces)))
    rules = [RULES[index] for index in sorted(chosen)]
    wanted, blocked = expected(rules, "".join(pieces), {})
    came = b"".join(b"data: %b\n\n" % FORMS[form](piece) for piece in pieces)
    guard = policy(*rules).open_stream("sse")
    sent = b""
    parts = cut(came, chunks)
    try:
        for at, chunk in enumerate(parts):
            sent += guard.feed(chunk, at == len(parts) - 1)
        was_cut = False
    except EndBody as ended:
        # The error that ends it, and the end.
        sent, was_cut = (sent + ended.last).rpartition(b'data: {"error"')[0], True
    said = [event.removeprefix(b"data: ") for event in sent.split(b"\n\n") if event]
    if form == "text":
        got = "".join(map(bytes.decode, said))
    elif form == "a string":
        got = "".join(map(json.loads, said))
    else:
        got = "".join(event.get("token", {}).get("text", "") for event in map(json.loads, said))
    assert was_cut == blocked
    if was_cut:
        assert wanted.partition(BLOCKED)[0].startswith(got)
    else:
        assert got == wanted
