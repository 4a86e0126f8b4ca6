"""Rules on bodies: tokens in and out, parameters, images and files."""

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from ipp.guardrails.matches import REMOVED, Change, Facts
from ipp.guardrails.rules.tokens import estimate
from tests.support.guardrail_rules import made


def kinds(rule: Any, body: dict[str, Any], **facts: Any) -> list[tuple[str, str]]:
    return [(match.path, match.kind) for match in rule.check(body, Facts(**facts))]


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "a" * 40}, 10),
        ({"prompt": "я" * 40}, 20),
        ({"prompt": "爆" * 40}, 40),
        ({"prompt": [1, 2, 3]}, 3),
        ({"prompt": [[1, 2], [3]]}, 3),
        ({"messages": [{"role": "user", "content": "a" * 36}]}, 14),
        ({"system": "a" * 8, "messages": []}, 2),
        ({"input": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 4000}]}, 3),
        ({"contents": [{"parts": [{"text": "a" * 8}, {"inlineData": {"data": "A" * 4000}}]}]}, 2),
        ({"model": "x" * 400}, 0),
    ],
)
def test_estimates_the_tokens_of_a_prompt(body: dict, tokens: int):
    assert estimate(body) == tokens


def test_a_count_by_the_models_tokenizer_goes_before_the_estimate():
    rule = made("maxInputTokens", {"tokens": 10})
    assert kinds(rule, {"prompt": "a" * 4000}, input_tokens=10) == []
    assert kinds(rule, {"prompt": "a"}, input_tokens=11) == [("", "tooMany")]
    assert kinds(rule, {"prompt": "a" * 44}) == [("", "tooManyEstimated")]
    assert kinds(rule, {"prompt": list(range(11))}) == [("", "tooMany")]
    assert kinds(rule, {"input": [list(range(6)), list(range(5))]}) == [("", "tooMany")]
    assert kinds(rule, {"prompt": list(range(10))}) == []


@pytest.mark.parametrize(
    ("body", "path", "kind"),
    [
        ({"max_tokens": 101}, "max_tokens", "tooMany"),
        ({"max_completion_tokens": 101}, "max_completion_tokens", "tooMany"),
        ({"max_output_tokens": 101.0}, "max_output_tokens", "tooMany"),
        ({"generationConfig": {"maxOutputTokens": 101}}, "generationConfig.maxOutputTokens", "tooMany"),
        ({"options": {"num_predict": -1}}, "options.num_predict", "tooMany"),
        ({"max_tokens": "5"}, "max_tokens", "type"),
        ({"max_tokens": True}, "max_tokens", "type"),
        ({"messages": []}, "max_tokens", "missing"),
        ({"messages": [], "max_tokens": None}, "max_tokens", "missing"),
        ({"contents": []}, "generationConfig.maxOutputTokens", "missing"),
    ],
)
def test_masking_puts_the_limit_where_more_or_nothing_is_asked_for(body: dict, path: str, kind: str):
    found = made("maxOutputTokens", {"tokens": 100}, mode="mask").check(body, Facts())
    assert [(m.path, m.kind, m.changes) for m in found] == [
        (path, kind, (Change(tuple(path.split(".")), 100),))
    ]


def test_an_answer_of_the_responses_api_is_limited_and_embeddings_have_none():
    rule = made("maxOutputTokens", {"tokens": 100}, mode="mask")
    assert kinds(rule, {"input": "x"}, path="/v1/responses?x=1") == [("max_output_tokens", "missing")]
    assert kinds(rule, {"input": "x"}, path="/v1/embeddings") == []


def test_blocking_refuses_only_those_who_ask_for_more():
    rule = made("maxOutputTokens", {"tokens": 100})
    assert kinds(rule, {"messages": []}) == kinds(rule, {"max_tokens": 100}) == []
    assert kinds(rule, {"max_tokens": 5, "max_completion_tokens": 101}) == [
        ("max_completion_tokens", "tooMany")
    ]


def test_models_tools_ranges_and_fields_are_judged_with_what_mends_them():
    rule = made(
        "parameters",
        {
            "allowedModels": ["llama-*", "tiny"],
            "allowedTools": ["search"],
            "ranges": {"temperature": {"min": 0.1, "max": 1}},
            "forbidden": ["logprobs", "extra.debug"],
            "forced": {"store": False},
        },
        mode="mask",
    )
    search, shell = {"type": "function", "function": {"name": "search"}}, {"name": "shell"}
    body = {
        "model": "gpt",
        "tools": [search, shell],
        "temperature": 2,
        "generationConfig": {"temperature": 0},
        "logprobs": None,
        "extra": {"debug": 1},
        "store": 0,
    }
    assert [tuple(match) for match in rule.check(body, Facts())] == [
        ("model", "model", ()),
        ("tools[1].name", "tool", (Change(("tools",), [search]),)),
        ("temperature", "outOfRange", (Change(("temperature",), 1),)),
        ("generationConfig.temperature", "outOfRange", (Change(("generationConfig", "temperature"), 0.1),)),
        ("logprobs", "forbidden", (Change(("logprobs",), REMOVED),)),
        ("extra.debug", "forbidden", (Change(("extra", "debug"), REMOVED),)),
        ("store", "forced", (Change(("store",), False),)),
    ]
    assert kinds(rule, {"model": "llama-3", "tools": [search], "temperature": 1, "store": False}) == []


@pytest.mark.parametrize(
    ("tools", "path"),
    [
        (
            [{"functionDeclarations": [{"name": "search"}, {"name": "rm"}]}],
            "tools[0].functionDeclarations[1].name",
        ),
        ([{"type": "web_search"}], "tools[0].type"),
        ([{"googleSearch": {}}], "tools[0].googleSearch"),
        (["rm"], "tools[0]"),
    ],
)
def test_tools_are_seen_in_every_shape(tools: list, path: str):
    rule = made("parameters", {"allowedTools": ["search"]})
    assert kinds(rule, {"tools": tools}) == [(path, "tool")]


def test_a_model_that_is_missing_or_no_text_is_not_an_allowed_one():
    rule = made("parameters", {"allowedModels": ["*"]})
    assert [kinds(rule, body) for body in ({}, {"model": 5}, {"model": "any"})] == [
        [("model", "model")],
        [("model", "model")],
        [],
    ]


def url(kind: str, first: bytes, size: int = 100) -> str:
    return f"data:{kind};base64,{base64.b64encode(first + b'0' * size).decode()}"


PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-1.7"
SOURCE = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(PDF).decode()}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image_url", "image_url": {"url": url("image/png", PNG)}}, []),
        ({"type": "image_url", "image_url": {"url": url("image/png", PDF)}}, [(".image_url", "disguised")]),
        ({"type": "input_image", "image_url": url("image/png", PNG, 2000)}, [(".image_url", "size")]),
        ({"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}}, [(".image_url", "host")]),
        ({"type": "image_url", "image_url": {"url": "https://a.example.com/x.png"}}, []),
        ({"type": "document", "source": SOURCE}, [(".source", "type")]),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}, []),
        ({"type": "file", "file": {"file_data": url("application/pdf", PDF)}}, [(".file", "type")]),
        ({"type": "input_file", "file_data": url("application/pdf", PDF)}, [("", "type")]),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            [(".input_audio", "type")],
        ),
        ({"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}}, [(".inlineData", "type")]),
        ({"fileData": {"mimeType": "image/png", "fileUri": "gs://b/x"}}, [(".fileData", "host")]),
        (
            {"type": "tool_result", "content": [{"type": "image", "source": SOURCE}]},
            [(".content[0].source", "type")],
        ),
        ({"type": "text", "text": "data:image/png;base64,AAAA"}, []),
    ],
)
def test_images_and_files_are_seen_in_every_shape(part: dict, expected: list[tuple[str, str]]):
    rule = made("media", {"types": ["image/*"], "maxBytes": 1000, "hosts": ["*.example.com"]})
    body = {"messages": [{"role": "user", "content": [part]}]}
    assert kinds(rule, body) == [(f"messages[0].content[0]{path}", kind) for path, kind in expected]


def test_what_is_not_sent_along_can_be_refused_as_a_whole():
    rule = made("media", {"remote": False})
    body = {
        "input": [{"type": "input_image", "file_id": "f1"}, {"type": "input_file", "file_url": "http://x/y"}]
    }
    assert kinds(rule, body) == [("input[0]", "remote"), ("input[1].file_url", "remote")]


def test_one_more_than_allowed_is_told_once():
    rule = made("media", {"maxItems": 1})
    parts = [{"type": "image_url", "image_url": {"url": url("image/png", PNG)}} for _ in range(4)]
    assert kinds(rule, {"messages": [{"content": parts}]}) == [("messages[0].content[1].image_url", "count")]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [({}, "rule.parameters"), ({"remote": False, "hosts": ["a.b"]}, "rule.parameters.hosts")],
)
def test_limits_that_say_nothing_are_refused(parameters: dict, path: str):
    with pytest.raises(ConfigError) as refused:
        made("media", parameters)
    assert refused.value.path == path


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["source", "image_url", "file", "data", "url", "type", "name", "function", "parts"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
BODIES = st.dictionaries(
    st.sampled_from(
        [
            "model",
            "messages",
            "tools",
            "functions",
            "tool_choice",
            "temperature",
            "max_tokens",
            "generationConfig",
            "input",
        ]
    ),
    VALUES,
)
RULES = [
    made("maxInputTokens", {"tokens": 1}),
    made("maxOutputTokens", {"tokens": 1}, mode="mask"),
    made("parameters", {"allowedModels": ["a"], "allowedTools": [], "ranges": {"temperature": {"max": 1}}}),
    made("media", {"types": [], "maxBytes": 1, "hosts": []}),
]


@settings(max_examples=100, deadline=None)
@given(body=BODIES)
def test_no_body_makes_a_rule_fail(body: dict[str, Any]):
    for rule in RULES:
        assert all(isinstance(match.path, str) and match.kind for match in rule.check(body, Facts()))
