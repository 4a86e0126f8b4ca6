"""Another model is asked for than the client named, and the client does not notice."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

import pytest

from dataplane.errors import BadRequestError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Decision, Ending, HttpRequest
from dataplane.headers import Headers
from epp.handler import PickerExchange
from epp.model_names import WARNING_INTERVAL_S
from epp.objects.model import MAX_MODEL_NAME_BYTES, ModelRewrite, RewriteRule, RewriteTarget
from epp.objects.snapshot import PoolObjects
from tests.support.request_path import Rig, request_of, response

PARSERS = """
- type: queue-scorer
- type: openai-parser
- type: sglanghttp-parser
- type: vertexai-parser
- type: passthrough-parser
requestHandler:
  parsers:
  - pluginRef: openai-parser
  - pluginRef: sglanghttp-parser
  - pluginRef: vertexai-parser
  - pluginRef: passthrough-parser
"""
HEADER = "x-llm-d-model-name-rewrite"
OLD_HEADER = "x-gateway-model-name-rewrite"
BODY = b'{ "prompt":"hello", "seed":1.0, "model" : "m" }'
SSE = ("content-type", "text/event-stream; charset=utf-8")
JSON = ("content-type", "application/json")


def rewrite(target: str, *models: str, name: str = "r", age: float = 0.0) -> ModelRewrite:
    return ModelRewrite(name, age, (RewriteRule((RewriteTarget(target),), models),))


def ask(
    rig: Rig, body: bytes = BODY, *headers: tuple[str, str], path: str = "/v1/completions"
) -> tuple[PickerExchange, Proceed]:
    exchange = rig.handler.open()
    fields = Headers.of([(":path", path), (":method", "POST"), ("x-request-id", "1"), *headers])
    answer = exchange.on_request(HttpRequest(fields, body, None), lambda decision: None)
    assert isinstance(answer, Proceed)
    return exchange, answer


def answered(exchange: PickerExchange, *headers: tuple[str, str], status: int = 200) -> Proceed:
    decision: Decision = exchange.on_response_headers(response(*headers, status=status))
    assert isinstance(decision, Proceed)
    return decision


def passed(exchange: PickerExchange, body: str, *headers: tuple[str, str]) -> str:
    """What the client gets of a response body that comes in two chunks."""
    transform = answered(exchange, *headers).transform
    raw = body.encode()
    chunks = [raw[: len(raw) // 2], raw[len(raw) // 2 :]]
    for i, chunk in enumerate(chunks):
        exchange.on_response_chunk(chunk, i == 1)
        if transform is not None:
            chunks[i] = transform.feed(chunk, i == 1)
    exchange.on_end(Ending.NATURAL)
    return b"".join(chunks).decode()


def sample(rig: Rig, name: str, **labels: str) -> float | None:
    start = f"llm_d_epp_{name}{{"
    for line in "".join(rig.metrics.numbers.expose()).splitlines():
        if line.startswith(start) and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return None


# -- requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [HEADER, OLD_HEADER])
def test_header_gives_the_target_and_only_the_name_changes_in_the_body(header: str):
    rig = Rig(PARSERS)
    exchange, answer = ask(rig, BODY, (header, "m-12345"))
    assert answer.body == b'{ "prompt":"hello", "seed":1.0, "model" : "m-12345" }'
    assert list(answer.remove_headers) == [header]
    assert answer.clear_route_cache
    request = request_of(exchange)
    assert (request.model, request.target_model) == ("m", "m-12345")
    assert request.new_body is None
    assert sample(rig, "request_total", model_name="m", target_model_name="m-12345") == 1
    assert sample(rig, "model_rewrite_decisions_total") is None
    (record,) = rig.decisions.recent()
    assert (record["model"], record["targetModel"]) == ("m", "m-12345")


def test_rule_gives_the_target_and_overrides_the_header():
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=[rewrite("by-rule", "m", name="canary")])
    exchange, answer = ask(rig, BODY, (HEADER, "by-header"))
    assert json.loads(answer.body or b"")["model"] == "by-rule"
    assert request_of(exchange).target_model == "by-rule"
    found = sample(
        rig,
        "model_rewrite_decisions_total",
        model_rewrite_name="canary",
        model_name="m",
        target_model="by-rule",
    )
    assert found == 1
    assert sample(rig, "scheduler_attempts_total", status="success", target_model_name="by-rule") == 1


def test_header_counts_where_no_rule_matches():
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=[rewrite("by-rule", "another")])
    assert json.loads(ask(rig, BODY, (HEADER, "by-header"))[1].body or b"")["model"] == "by-header"


@pytest.mark.parametrize("objects", [PoolObjects(), PoolObjects(rewrites=[rewrite("t", "other")])])
def test_request_that_nothing_concerns_takes_the_fast_path(objects: PoolObjects):
    rig = Rig(PARSERS)
    rig.objects.current = objects
    exchange, answer = ask(rig)
    assert answer.body is None
    again = {id(ask(rig)[1]) for _ in range(20)}
    assert id(answer) in again
    assert len(again) == 2  # one kept answer for each endpoint
    assert answered(exchange, JSON) is answered(ask(rig)[0], JSON)


def test_target_that_is_the_requested_model_changes_nothing():
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=[rewrite("m")])
    exchange, answer = ask(rig)
    assert answer.body is None
    assert answered(exchange, JSON).transform is None
    assert sample(rig, "model_rewrite_decisions_total", model_name="m", target_model="m") == 1


def test_generic_rule_supplies_the_model_that_a_request_lacks():
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=[rewrite("default")])
    exchange, answer = ask(rig, b'{"prompt":"hello"}')
    assert answer.body == b'{"model":"default","prompt":"hello"}'
    request = request_of(exchange)
    assert (request.model, request.target_model) == ("", "default")
    assert answered(exchange, JSON).transform is None  # the client has no name to get back


@pytest.mark.parametrize("rewrites", [(), (rewrite("t", "m"),)], ids=["no rule", "no rule that matches"])
def test_request_without_a_model_is_refused_when_nothing_supplies_one(rewrites: tuple[ModelRewrite, ...]):
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=rewrites)
    with pytest.raises(BadRequestError) as caught:
        ask(rig, b'{"prompt":"hello"}')
    assert (caught.value.message, caught.value.param) == ("model not found in request body", "model")
    assert rig.table.inflight.sum() == 0


def test_api_that_has_no_model_is_given_none():
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=[rewrite("t")])
    exchange, answer = ask(rig, b'{"items":[]}', path="/v1/conversations")
    assert answer.body is None
    assert request_of(exchange).target_model == ""
    assert sample(rig, "model_rewrite_decisions_total") is None


def test_weights_share_requests_out():
    rig = Rig(PARSERS)
    targets = (RewriteTarget("a", 80), RewriteTarget("b", 20), RewriteTarget("never"))
    rig.objects.current = PoolObjects(rewrites=[ModelRewrite("r", 0.0, (RewriteRule(targets, ("m",)),))])
    chosen = Counter(json.loads(ask(rig)[1].body or b"")["model"] for _ in range(600))
    assert set(chosen) == {"a", "b"}
    assert 400 < chosen["a"] < 560


@pytest.mark.parametrize(
    "name", ["x" * (MAX_MODEL_NAME_BYTES + 1), b"\xff".decode("utf-8", "surrogateescape")]
)
def test_header_that_no_body_could_carry_is_refused(name: str):
    rig = Rig(PARSERS)
    with pytest.raises(BadRequestError, match="must be UTF-8 text of at most 1024 bytes"):
        ask(rig, BODY, (HEADER, name))
    assert rig.table.inflight.sum() == 0


def test_parser_that_cannot_rewrite_leaves_the_request_and_is_complained_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
):
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=[rewrite("t")])
    with caplog.at_level(logging.WARNING):
        for step in (0.0, 1.0, WARNING_INTERVAL_S):
            rig.clock.advance(step)
            exchange, answer = ask(rig, b"anything", path="/unknown")
            assert answer.body is None
            assert request_of(exchange).target_model == ""
    said = [r.getMessage() for r in caplog.records if "keep their model" in r.getMessage()]
    assert (
        said
        == ["requests that parser 'passthrough-parser' reads keep their model: it cannot rewrite names"] * 2
    )


def test_get_request_is_not_rewritten():
    rig = Rig(PARSERS)
    rig.objects.current = PoolObjects(rewrites=[rewrite("t")])
    exchange = rig.handler.open()
    fields = Headers.of([(":path", "/v1/models"), (":method", "GET"), (HEADER, "x")])
    answer = exchange.on_request(HttpRequest(fields, b"", None), lambda decision: None)
    assert isinstance(answer, Proceed)
    assert answer.body is None


def test_models_that_rules_name_are_counted_under_their_names_whatever_clients_ask_for():
    rig = Rig(PARSERS)
    for i in range(1000):
        rig.metrics.for_request(f"flood-{i}", f"flood-{i}", "f", 0)
    rig.objects.current = PoolObjects(rewrites=[rewrite("named-target", "named")])
    ask(rig, b'{"prompt":"x","model":"named"}')
    ask(rig, b'{"prompt":"x","model":"late"}', (HEADER, "late-target"))
    assert sample(rig, "request_total", model_name="named", target_model_name="named-target") == 1
    assert sample(rig, "request_total", model_name="other", target_model_name="other") == 1


# -- responses --------------------------------------------------------------------------------------------


def test_client_gets_its_own_name_back_and_usage_is_counted():
    rig = Rig(PARSERS)
    exchange, _ = ask(rig, BODY, (HEADER, "t"))
    body = '{"model":"t","text":"\\"model\\":\\"t\\"","usage":{"prompt_tokens":7,"completion_tokens":3}}'
    assert passed(exchange, body, JSON) == body.replace('"model":"t"', '"model":"m"', 1)
    assert sample(rig, "request_input_tokens_sum", model_name="m", target_model_name="t") == 7


def test_each_event_of_a_stream_names_the_client_s_model():
    rig = Rig(PARSERS)
    exchange, _ = ask(rig, b'{"model":"m","prompt":"x","stream":true}', (HEADER, "t"))
    body = (
        'data: {"model":"t","choices":[{"text":"t"}]}\n\n'
        'data: {"model": "t","choices":[],"usage":{"prompt_tokens":4}}\n\ndata: [DONE]\n\n'
    )
    expected = body.replace('"model":"t"', '"model":"m"').replace('"model": "t"', '"model": "m"')
    assert passed(exchange, body, SSE) == expected
    assert sample(rig, "request_input_tokens_sum", model_name="m", target_model_name="t") == 4


@pytest.mark.parametrize(
    ("headers", "is_rewritten"),
    [
        ([JSON], True),
        ([], True),
        ([("content-type", "application/problem+json")], True),
        ([("content-type", "TEXT/EVENT-STREAM")], True),
        ([JSON, ("content-encoding", "identity")], True),
        ([JSON, ("content-encoding", "gzip")], False),
        ([SSE, ("content-encoding", "br")], False),
        ([("content-type", "text/plain")], False),
        ([("content-type", "audio/mpeg")], False),
    ],
    ids=str,
)
def test_only_a_response_that_can_be_read_is_rewritten(headers: list[tuple[str, str]], is_rewritten: bool):
    exchange, _ = ask(Rig(PARSERS), BODY, (HEADER, "t"))
    assert (answered(exchange, *headers).transform is not None) is is_rewritten


def test_error_of_the_model_server_names_the_client_s_model_too():
    exchange, _ = ask(Rig(PARSERS), BODY, (HEADER, "t"))
    transform = answered(exchange, JSON, status=404).transform
    assert transform is not None
    assert transform.feed(b'{"model":"t"}', True) == b'{"model":"m"}'


def test_response_whose_api_names_no_model_passes():
    rig = Rig(PARSERS)
    exchange, answer = ask(rig, b'{"text":"x","model":"m"}', (HEADER, "t"), path="/generate")
    assert answer.body == b'{"text":"x","model":"t"}'
    assert answered(exchange, JSON).transform is None


def test_request_that_is_not_rewritten_gets_its_response_as_it_is():
    exchange, _ = ask(Rig(PARSERS))
    assert answered(exchange, JSON).transform is None


def test_each_response_has_a_rewriter_of_its_own():
    rig = Rig(PARSERS)
    answers: list[Any] = [answered(ask(rig, BODY, (HEADER, name))[0], JSON).transform for name in ("t", "u")]
    assert answers[0].feed(b'{"model":"t"', False) == b'{"model":"m"'
    assert answers[1].feed(b'{"model":"t"', False) == b'{"model":"t"'


def test_model_server_is_asked_not_to_compress_a_response_in_which_the_name_is_put_back():
    accepts = ("accept-encoding", "gzip, deflate, br")
    rig = Rig(PARSERS)
    assert dict(ask(rig, BODY, (HEADER, "t"), accepts)[1].set_headers)["accept-encoding"] == b"identity"
    for body, *headers in (
        (BODY, accepts),  # keeps its model
        (BODY, (HEADER, "m"), accepts),  # likewise
        (BODY, (HEADER, "t")),  # does not say what it accepts
        (b'{"prompt":"x"}', (HEADER, "t"), accepts),  # has no name to put back
    ):
        _, answer = ask(rig, body, *headers)
        assert "accept-encoding" not in dict(answer.set_headers)
        assert "accept-encoding" not in answer.remove_headers


def test_digests_of_rewritten_bodies_are_removed_and_those_of_others_kept():
    digests = [(name, "sha-256=:AAAA:") for name in ("content-digest", "repr-digest", "digest")]
    digests.append(("content-md5", "AAAA"))
    names = {name for name, _ in digests}
    exchange, answer = ask(Rig(PARSERS), BODY, (HEADER, "t"), *digests)
    assert names < set(answer.remove_headers)
    assert set(answered(exchange, JSON, *digests).remove_headers) == names
    exchange, answer = ask(Rig(PARSERS), BODY, *digests)
    assert not names & {*answer.remove_headers, *answered(exchange, JSON, *digests).remove_headers}
    exchange, _ = ask(Rig(PARSERS), BODY, (HEADER, "t"))
    compressed = answered(exchange, JSON, ("content-encoding", "gzip"), *digests)
    assert not names & set(compressed.remove_headers)
