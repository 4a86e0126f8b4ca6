"""What nobody means well, through a real Envoy, processor and picker: nothing that is blocked gets through.

One gateway for all of it, whose processor must be the same one in the end, with bounded memory. What it costs
is counted elsewhere; here it only has to end, in the shape of the OpenAI API.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.guarded import JSON, Answered, Guarded, chat, chunked, event, guarded_gateway, said, whole

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

CONFIG = """
pools:
  - {name: a, models: [alpha], simulator: {replicas: 1, profile: instant}}
payloadProcessor:
  config:
    plugins:
    - {type: body-field-to-header, parameters: {fieldName: model, headerName: X-Gateway-Model-Name}}
    - {type: base-model-to-header, parameters: {mappings: [{baseModel: alpha, aliases: [fast]}]}}
    - {type: guardrails}
    profiles:
    - name: default
      plugins:
        request:
        - {pluginRef: body-field-to-header}
        - {pluginRef: base-model-to-header}
        - {pluginRef: guardrails}
        response: [{pluginRef: guardrails}]
  policies:
  - apiVersion: pointsman.dev/v1
    kind: GuardrailPolicy
    metadata: {name: house}
    spec:
      models: [alpha]
      rules:
      - name: words
        type: keywords
        stages: [request, response, stream]
        parameters: {words: [forbidden, verboten\u00e9]}
      - name: mail
        type: pii
        mode: mask
        stages: [request, response, stream]
        parameters: {entities: [email]}
"""
MIB = 1 << 20
DEEP = 100_000
MEMORY_KB = 400_000
BLOCKED = "guardrail_keywords"
UNREADABLE = "guardrail_unreadable"
DONE = b"data: [DONE]\n\n"
FORBIDDEN = chat("this is forbidden")
FORM = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n%b\r\n--x--\r\n'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    async with guarded_gateway(CONFIG, tmp_path_factory.mktemp("hostile")) as running:
        running.is_patient = True
        pid = running.gateway.children["ipp"].pid
        yield running
        assert running.gateway.children["ipp"].pid == pid, "the processor has lived through all of it"
        assert await running.memory_kb() < MEMORY_KB
        answer = await running.ask(chat("hello"), said("hello you"))
        assert json.loads(answer.body)["choices"][0]["message"]["content"] == "hello you"


def with_member(member: bytes) -> bytes:
    return b'{"model":"alpha",' + member + b',"messages":[{"role":"user","content":"forbidden"}]}'


MALFORMED = {
    "lists within lists": with_member(b'"x":' + b"[" * DEEP + b"]" * DEEP),
    "objects within objects": with_member(b'"x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "deeper than any API": with_member(b'"x":' + b"[" * 80 + b"]" * 80),
    "open lists": b"[" * DEEP,
    "a number of 10000 digits": with_member(b'"seed":' + b"9" * 10_000),
    "an exponent of 10000 digits": with_member(b'"seed":1e' + b"9" * 10_000),
    "half a character": with_member(rb'"user":"\ud800"'),
    "no UTF-8": with_member(b'"user":"\xff"'),
    "characters spelt too long": with_member(b'"user":"\xc0\xaf"'),
    "NUL": with_member(b'"user":"\x00"'),
    "no number": with_member(b'"seed":NaN'),
    "a mark before it": b"\xef\xbb\xbf" + FORBIDDEN,
    "two bytes a character": FORBIDDEN.decode().encode("utf-16"),
    "two documents": FORBIDDEN + FORBIDDEN,
    "no object": b'"forbidden"',
    "too many texts": b'{"model":"alpha","prompt":[' + b",".join([b'"x"'] * 100_001) + b"]}",
    "nothing": b"",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_a_body_that_is_no_request_is_refused(guarded: Guarded, body: bytes) -> None:
    answer = await guarded.ask(body)
    status, code = answer.refused
    assert status == 400
    assert code in (None, UNREADABLE)
    assert answer.error["type"] == "invalid_request_error"


BLOCKED_REQUESTS: dict[str, tuple[bytes, dict[str, str]]] = {
    "as it is": (FORBIDDEN, {}),
    "as an upload": (FORBIDDEN, {"content-type": "multipart/form-data; boundary=x"}),
    "as bytes": (FORBIDDEN, {"content-type": "application/octet-stream"}),
    "as a picture": (b" \n" + FORBIDDEN, {"content-type": "image/png"}),
    "as text": (FORBIDDEN, {"content-type": "text/plain"}),
    "of no type": (FORBIDDEN, {"content-type": ""}),
    "in the last of two members": (b'{"messages":[],' + FORBIDDEN[1:], {}),
    "in the first of two members": (FORBIDDEN[:-1] + b',"messages":[{"role":"user","content":"x"}]}', {}),
    "under an escaped name": (FORBIDDEN.replace(b'"messages"', rb'"mess\u0061ges"'), {}),
    "with NUL in between": (chat("for\0bidden"), {}),
    "for a model in spaces": (FORBIDDEN.replace(b"alpha", b" alpha "), {}),
    "for another name of the model": (FORBIDDEN.replace(b"alpha", b"fast"), {}),
    "for an escaped model": (FORBIDDEN.replace(b"alpha", rb"\u0061lpha"), {}),
    "for no model": (FORBIDDEN.replace(b'"model"', b'"modell"'), {}),
    "for the model null": (FORBIDDEN.replace(b'"alpha"', b"null"), {}),
    "for the empty model": (FORBIDDEN.replace(b"alpha", b""), {}),
    "in arguments of a tool": (
        chat("x", tool_calls=[{"function": {"name": "f", "arguments": '{"forbidden":' + "[" * DEEP}}]),
        {},
    ),
}


@pytest.mark.parametrize(("body", "headers"), BLOCKED_REQUESTS.values(), ids=BLOCKED_REQUESTS)
async def test_a_disguised_request_is_blocked(guarded: Guarded, body: bytes, headers: dict[str, str]) -> None:
    assert (await guarded.ask(body, headers=headers)).refused == (400, BLOCKED)


UPLOADS: dict[str, tuple[bytes, str]] = {
    "a form": (FORM % b"alpha", "multipart/form-data; boundary=x"),
    "a form without a model": (FORM.replace(b"model", b"file") % b"alpha", "multipart/form-data; boundary=x"),
    "a form with two models": (
        FORM % b"other" + FORM % b"alpha",
        "multipart/form-data; boundary=x",
    ),
    "bytes": (b"\x00forbidden", "application/octet-stream"),
    "half an object": (FORBIDDEN[:-1], "application/octet-stream"),
    "sound": (b"RIFF....WAVE", "audio/wav"),
}


@pytest.mark.parametrize(("body", "content_type"), UPLOADS.values(), ids=UPLOADS)
async def test_what_nobody_can_look_into_is_refused(guarded: Guarded, body: bytes, content_type: str) -> None:
    answer = await guarded.ask(body, headers={"content-type": content_type})
    assert answer.refused == (400, UNREADABLE)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip", "GZIP"])
async def test_a_compressed_request_is_refused_and_never_inflated(guarded: Guarded, encoding: str) -> None:
    bomb = gzip.compress(chat("forbidden" + " " * 50 * MIB), 1)
    for body in (bomb, zlib.compress(FORBIDDEN), FORBIDDEN):
        answer = await guarded.ask(body, headers={"content-encoding": encoding})
        assert answer.refused == (400, None)
        assert "send it plain" in answer.error["message"]


async def test_a_body_that_is_too_large_is_refused_however_it_comes(guarded: Guarded) -> None:
    piece = b"x" * 65_536

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"model":"alpha","prompt":"'
        for _ in range(1600):
            yield piece

    announced = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 104857600\r\n\r\n{"
    first = await guarded.raw(announced)
    assert (first.status, json.loads(first.body)["error"]["code"]) == (413, "request_too_large")
    assert (await guarded.ask(pieces())).refused == (413, "request_too_large")


async def test_a_request_that_trickles_in_is_seen_whole(guarded: Guarded) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(len(FORBIDDEN)):
            yield FORBIDDEN[at : at + 1]
            await asyncio.sleep(0)

    assert (await guarded.ask(pieces())).refused == (400, BLOCKED)


async def test_trailers_and_other_methods_hide_nothing(guarded: Guarded) -> None:
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: x-a\r\n\r\n"
    )
    body = b"%x\r\n%b\r\n0\r\nx-a: 1\r\n\r\n" % (len(FORBIDDEN), FORBIDDEN)
    answer = await guarded.raw(head + body)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, BLOCKED)
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert (await guarded.ask(FORBIDDEN, method=method)).refused == (400, BLOCKED)
    assert (await guarded.ask(None, method="HEAD")).status == 404


async def test_what_is_merely_large_passes_whole(guarded: Guarded) -> None:
    picture = "data:image/png;base64," + "iVBORw0KGgoA" * (10 * MIB // 12)
    body = chat(
        [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "a@b.example"}]
    )
    answer = await guarded.ask(body, said("<EMAIL_1>"))
    (seen,) = answer.seen
    assert seen.body == body.replace(b"a@b.example", b"<EMAIL_1>")
    assert b"a@b.example" in answer.body
    many = {"model": "alpha", "messages": [{"role": "user", "content": "x"}] * 5000}
    choices = [{"index": at, "message": {"content": "y"}} for at in range(5000)]
    answer = await guarded.ask(json.dumps(many), whole(json.dumps({"choices": choices}).encode()))
    assert (answer.status, len(json.loads(answer.body)["choices"])) == (200, 5000)


def in_bytes(*events: bytes) -> Iterator[bytes]:
    data = b"".join(events)
    return (data[at : at + 1] for at in range(len(data)))


def other(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


def arguments(text: str) -> bytes:
    calls = [{"index": 0, "function": {"arguments": text}}]
    return event("", delta={"tool_calls": calls})


TWO = (event("good forb"), event("idden"))
STREAMS: dict[str, Any] = {
    "in two events": lambda: TWO,
    "byte by byte": lambda: in_bytes(*TWO),
    "CRLF": lambda: in_bytes(*(each.replace(b"\n", b"\r\n") for each in TWO)),
    "CR": lambda: in_bytes(*(each.replace(b"\n", b"\r") for each in TWO)),
    "no space": lambda: [each.replace(b"data: ", b"data:") for each in TWO],
    "data over lines": lambda: [each.replace(b'"choices"', b'\ndata:"choices"') for each in TWO],
    "a mark before it": lambda: [b"\xef\xbb\xbf", *TWO],
    "comments in between": lambda: [TWO[0], b": ping\n\n", b"id: 7\nretry: 1\n\n", TWO[1]],
    "in a comment": lambda: [b": forbidden\n\n"],
    "in another field": lambda: [b"id: forbidden\ndata: {}\n\n"],
    "in a field nobody knows": lambda: [b"Data: forbidden\n\n"],
    "as text": lambda: [b"data: good forb\n\n", b"data: idden\n\n"],
    "as strings": lambda: [other('"good forb"'), other('"idden"')],
    "of no known API": lambda: [other('{"token":{"text":"forb"}}'), other('{"token":{"text":"idden"}}')],
    "escaped": lambda: [event("good forb"), TWO[1].replace(b"idden", rb"\u0069dden")],
    "NUL in between": lambda: [event("forb\0"), event("idden")],
    "halves of characters around it": lambda: [
        TWO[0].replace(b"good", rb"\ud83d"),
        TWO[1].replace(b"idden", rb"idden \ude00"),
    ],
    "no UTF-8 before it": lambda: [TWO[0].replace(b"good", b"\xff"), TWO[1]],
    "numbers of 10000 digits": lambda: [TWO[0].replace(b"null", b"9" * 10_000), TWO[1]],
    "an empty reason each time": lambda: [each.replace(b"null", b'""') for each in TWO],
    "going on behind its end": lambda: [TWO[0].replace(b"null", b'"stop"'), TWO[1]],
    "in the first of two members": lambda: [
        b'data: {"choices":[{"delta":{"content":"forbidden","content":""}}]}\n\n'
    ],
    "in arguments": lambda: [arguments('{"a": "forb'), arguments('idden"}')],
    "in arguments, escaped": lambda: [arguments('{"a": "forb'), arguments('\\u0069dden"}')],
    "in arguments, deep": lambda: [arguments("[" * DEEP), arguments('"forbidden"')],
    "in an error": lambda: [other('{"error":{"message":"forbidden"}}')],
}


def assert_cut(answer: Answered, code: str = BLOCKED) -> None:
    """The stream ended as its API ends, with the code, and without what nobody may see."""
    assert (answer.status, answer.is_broken) == (200, False)
    told = answer.body.rpartition(b"data: {")
    assert json.loads(b"{" + told[2].partition(b"\n")[0])["error"]["code"] == code
    assert answer.body.endswith(DONE)
    assert b"bidden" not in answer.body
    assert b"idden" not in answer.body


@pytest.mark.parametrize("chunks", STREAMS.values(), ids=STREAMS)
async def test_a_stream_is_cut_before_what_it_may_not_say(guarded: Guarded, chunks: Any) -> None:
    assert_cut(await guarded.ask(chat("x", stream=True), chunked([*chunks(), DONE])))


async def test_a_stream_of_the_wrong_type_is_cut_as_well(guarded: Guarded) -> None:
    for content_type in (JSON, "text/plain", "application/octet-stream"):
        assert_cut(await guarded.ask(chat("x"), chunked(in_bytes(*TWO, DONE), content_type)))


def unreadable_event() -> Iterator[bytes]:
    yield b"data: "
    for _ in range(1600):
        yield b"x" * 65_536


UNREADABLE_STREAMS: dict[str, Any] = {
    "deeply nested": lambda: [event("x").replace(b"null", b"[" * DEEP + b"]" * DEEP)],
    "an event of 100 MiB": unreadable_event,
    "100000 choices": lambda: [
        other(json.dumps({"choices": [{"index": at, "delta": {"content": "x"}} for at in range(DEEP)]}))
    ],
    "texts without end": lambda: (
        other(json.dumps({"choices": [{"index": at, "delta": {"content": "x"}}]})) for at in range(2000)
    ),
}


@pytest.mark.parametrize("chunks", UNREADABLE_STREAMS.values(), ids=UNREADABLE_STREAMS)
async def test_a_stream_that_is_made_to_keep_us_busy_is_cut(guarded: Guarded, chunks: Any) -> None:
    before = await guarded.memory_kb()
    assert_cut(await guarded.ask(chat("x", stream=True), chunked(chunks())), UNREADABLE)
    assert await guarded.memory_kb() - before < 150_000


async def test_a_long_stream_passes_whole_without_being_held(guarded: Guarded) -> None:
    before = await guarded.memory_kb()
    one, count = event("the quick brown fox " * 1000), 400
    answer = await guarded.ask(chat("x", stream=True), chunked([one] * count + [DONE]))
    assert not answer.is_broken
    assert hashlib.sha256(answer.body).digest() == hashlib.sha256(one * count + DONE).digest()
    assert await guarded.memory_kb() - before < 50_000


def completion(content: bytes) -> bytes:
    return b'{"choices":[{"index":0,"message":{"role":"assistant","content":"%b"}}]}' % content


ANSWERS: dict[str, tuple[bytes, str]] = {
    "as it is": (completion(b"forbidden"), JSON),
    "of the wrong type": (completion(b"forbidden"), "text/event-stream"),
    "as text": (b"all that is forbidden", "text/plain"),
    "escaped, and broken off": (completion(rb"verboten\u00e9")[:-5], JSON),
    "escaped, behind a mark": (b"\xef\xbb\xbf" + completion(rb"verboten\u00e9"), JSON),
    "escaped, in lines": (b'{"response":"verboten\\u00e9"}\n{"response":"x"}\n', "application/x-ndjson"),
    "over lines": (b'{"response":"forb"}\n{"response":"idden"}\n', "application/x-ndjson"),
    "over documents": (
        b'{"choices":[{"index":0,"delta":{"content":"forb"}}]}{"choices":[{"index":0,"delta":{"content":"idden"}}]}',
        JSON,
    ),
    "over an array": (
        (
            b'[{"candidates":[{"content":{"parts":[{"text":"forb"}]}}]},'
            b'{"candidates":[{"content":{"parts":[{"text":"idden"}]}}]}]'
        ),
        JSON,
    ),
    "beside a number of 10000 digits": (completion(b'forbidden","x":' + b"9" * 10_000 + b',"y":"'), JSON),
    "beside half a character": (completion(rb"\ud800 forbidden"), JSON),
    "beside what is no UTF-8": (completion(b"\xff forbidden"), JSON),
    "in the first of two members": (completion(b'forbidden","content":"'), JSON),
    "in an error": (b'{"error":{"message":"forbidden"}}', JSON),
}


@pytest.mark.parametrize(("body", "content_type"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_that_says_what_it_may_not_is_withheld(
    guarded: Guarded, body: bytes, content_type: str
) -> None:
    answer = await guarded.ask(chat("x"), whole(body, content_type))
    assert not answer.is_broken
    assert json.loads(answer.body)["error"]["code"] == BLOCKED
    assert b"bidden" not in answer.body
    assert b"idden" not in answer.body


UNREADABLE_ANSWERS = {
    "deeply nested": completion(b'","x":' + b"[" * DEEP + b"]" * DEEP + b',"y":"'),
    "too many texts": b'{"data":[' + b",".join([b'"x"'] * 100_001) + b"]}",
    "too large": completion(b"x" * (33 * MIB)),
}


@pytest.mark.parametrize("body", UNREADABLE_ANSWERS.values(), ids=UNREADABLE_ANSWERS)
async def test_an_answer_nobody_can_look_into_is_withheld(guarded: Guarded, body: bytes) -> None:
    answer = await guarded.ask(chat("x"), whole(body))
    assert (answer.is_broken, answer.error["code"]) == (False, UNREADABLE)


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
async def test_a_compressed_answer_is_refused(guarded: Guarded, encoding: str) -> None:
    written = whole(gzip.compress(completion(b"forbidden")), JSON, f"content-encoding: {encoding}")
    answer = await guarded.ask(chat("x"), written, {"accept-encoding": "gzip, br"})
    assert (answer.status, answer.error["code"]) == (502, UNREADABLE)
    (seen,) = answer.seen
    assert "accept-encoding" not in seen.headers


async def test_a_stream_that_stops_within_a_placeholder_says_what_came(guarded: Guarded) -> None:
    body = chat("write to ada@example.org", stream=True)
    answer = await guarded.ask(body, chunked([event("to <EMAIL"), event("_1> and <EMA"), DONE]))
    said = [json.loads(line[6:]) for line in answer.body.split(b"\n\n")[:-2]]
    assert "".join(each["choices"][0]["delta"]["content"] for each in said) == "to ada@example.org and <EMA"
    broken = await guarded.ask(body, chunked([event("all is well"), event("x <EMAIL")], end=b""))
    assert b"ada" not in broken.body
    half = await guarded.ask(body, chunked([event("good st"), event("forbidden")[:-14]]))
    assert b"forb" not in half.body


async def test_a_client_that_leaves_ends_its_exchange(guarded: Guarded) -> None:
    key = "leaving"
    left = guarded.server.left[key] = asyncio.Event()

    def for_ever() -> Iterator[bytes]:
        while True:
            yield event("word " * 1000)

    guarded.server.answers[key] = chunked(for_ever())
    url = guarded.gateway.plan.url + "/v1/chat/completions"
    headers = {"content-type": JSON, "x-test-key": key}
    async with aiohttp.ClientSession() as session:
        answer = await session.post(url, data=chat("x", stream=True), headers=headers)
        await answer.content.readany()
        answer.close()
    await asyncio.wait_for(left.wait(), 30)
