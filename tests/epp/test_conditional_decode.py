"""Conditional decode: served where the prompt is held, else 412 with nothing left behind."""

from typing import Any

import pytest

from dataplane.errors import PreconditionFailedError
from dataplane.extproc.exchange import Ending, HttpRequest
from dataplane.headers import Headers
from epp.assembly import prefix_indexes
from epp.conditional_decode import wants_only_cached
from tests.support.pool import make_table
from tests.support.request_path import Rig, destination, response

PROMPT = b"a long prompt " * 40
BODY = b'{"model": "m", "prompt": "%s"}'

DEFAULT = "- type: prefix-cache-scorer\n"
NAMED = """
- {type: approx-prefix-cache-producer, name: mine}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: mine}}
"""
CREATED_BESIDE = NAMED + "- {type: no-hit-lru-scorer}\n"


def ask(rig: Rig, *prefer: str, prompt: bytes = PROMPT) -> Any:
    """One request with these Prefer headers, and its answer."""
    headers = Headers.of([(":path", "/v1/completions"), *(("prefer", value) for value in prefer)])
    exchange = rig.handler.open()
    return exchange, exchange.on_request(HttpRequest(headers, BODY % prompt, None), lambda decision: None)


def serve(rig: Rig, *prefer: str, prompt: bytes = PROMPT) -> str:
    """Where a request is served, from beginning to end."""
    exchange, decision = ask(rig, *prefer, prompt=prompt)
    exchange.on_response_headers(response())
    exchange.on_response_chunk(b"{}", True)
    exchange.on_end(Ending.NATURAL)
    return destination(decision)


@pytest.mark.parametrize(
    "values",
    [
        ["if-available"],
        ["If-Available"],
        [" IF-AVAILABLE ; wait=5 ; x"],
        ["respond-async, if-available"],
        ["respond-async", "wait=10, if-available;q=1"],
        ['if-available=""'],
        ['other="a, b", if-available'],
    ],
)
def test_the_preference_is_found(values: list[str]):
    assert wants_only_cached(Headers.of([("prefer", value) for value in values]))


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["if-availables"],
        ["not-if-available"],
        ["wait; if-available"],
        ["if-available=never"],
        ['other="if-available"'],
        ['other="a, if-available'],
        ['other="a\\", if-available, \\"b"'],
    ],
)
def test_other_preferences_are_none(values: list[str]):
    assert not wants_only_cached(Headers.of([("prefer", value) for value in values]))


def test_bytes_that_are_no_text_are_no_preference():
    assert not wants_only_cached(Headers.of([("prefer", b"\xff\xfe, if-availabl\xe9")]))


@pytest.mark.parametrize("plugins", [DEFAULT, NAMED, CREATED_BESIDE], ids=["default", "named", "both"])
def test_a_held_prompt_is_served_and_another_is_412(plugins: str):
    rig = Rig(plugins, make_table(4))
    with pytest.raises(PreconditionFailedError) as caught:
        serve(rig, "if-available")
    assert caught.value.message == "no decode worker has the requested KV cache"
    assert rig.table.inflight.sum() == 0
    first = serve(rig)
    assert serve(rig, "if-available") == first
    assert serve(rig, "if-available", prompt=PROMPT + b"and one more turn") == first
    with pytest.raises(PreconditionFailedError):
        serve(rig, "if-available", prompt=b"another " * 80)


def test_a_refused_request_leaves_nothing_behind():
    rig = Rig(DEFAULT + "- type: inflight-load-producer\n- type: token-load-scorer\n", make_table(2))
    for _ in range(3):
        with pytest.raises(PreconditionFailedError):
            ask(rig, "if-available")
    assert (rig.table.inflight.sum(), rig.table.inflight_tokens.sum()) == (0, 0)
    newest = next(iter(rig.decisions.recent()))
    assert newest["error"] == "PreconditionFailed: no decode worker has the requested KV cache"
    assert newest["response"]["status"] == 412
    assert 'error_code="PreconditionFailed"} 3' in "".join(rig.metrics.numbers.expose())


def test_where_nothing_is_known_nothing_is_available():
    with pytest.raises(PreconditionFailedError):
        ask(Rig("- type: queue-scorer\n"), "if-available")
    rig = Rig(DEFAULT)
    for _ in range(2):
        with pytest.raises(PreconditionFailedError):
            ask(rig, "if-available", prompt=b"short")
        serve(rig, prompt=b"short")


@pytest.mark.parametrize("plugins", [DEFAULT, NAMED, CREATED_BESIDE], ids=["default", "named", "both"])
def test_records_and_metrics_speak_of_the_same_producer(plugins: str):
    rig = Rig(plugins, make_table(4))
    rig.metrics.watch_prefix_indexes(prefix_indexes(rig.graph))
    for _ in range(2):
        serve(rig)
    newest, oldest = rig.decisions.recent()
    assert (oldest["prefix"]["matchedBlocks"], newest["prefix"]["matchedBlocks"]) == (0, 2)
    name = "approx-prefix-cache-producer" if plugins is DEFAULT else "mine"
    exposed = "".join(rig.metrics.numbers.expose())
    labels = f'{{plugin_name="{name}",plugin_type="approx-prefix-cache-producer"}}'
    assert f"llm_d_epp_prefix_indexer_hit_ratio_count{labels} 2" in exposed
