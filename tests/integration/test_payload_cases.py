"""What the field expects of a payload processor, seen from both sides of a real Envoy, with exact values."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipp.app import Processor
from ipp.options import parse_args
from tests.dataplane.extproc.vectors.envoy import (
    ENVOY,
    Envoy,
    Message,
    Upstream,
    exchange,
    post,
    post_chunked,
    running_envoy,
    running_upstream,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ENVOY.exists(), reason="Envoy is not installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- {type: body-field-to-header, parameters: {fieldName: model, headerName: X-Gateway-Model-Name}}
- type: base-model-to-header
  parameters:
    mappings: [{baseModel: qwen, adapters: [sql-lora-sheddable, foo, "1"]}]
profiles:
- name: default
  plugins: {request: [{pluginRef: body-field-to-header}, {pluginRef: base-model-to-header}]}
"""
FLAGS = (
    "--host=127.0.0.1",
    "--grpc-port=0",
    "--grpc-health-port=0",
    "--metrics-port=0",
    "--secure-serving=false",
)
MODEL, BASE = "x-gateway-model-name", "x-gateway-base-model-name"
LISTENER = "full duplex"


class Site:
    """A client's side and a model server's side of one Envoy with one processor."""

    def __init__(self, envoy: Envoy, upstream: Upstream) -> None:
        self.envoy = envoy
        self.upstream = upstream

    async def send(self, request: bytes) -> tuple[Message, Message | None]:
        """The answer, and what the model server saw, if anything."""
        self.upstream.seen.clear()
        answer = await exchange(self.envoy.ports[LISTENER], request)
        return answer, self.upstream.seen[0] if self.upstream.seen else None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    processor = Processor(parse_args([*FLAGS, f"--config-text={CONFIG}"]))
    await processor.start()
    try:
        folder = tmp_path_factory.mktemp("payload")
        async with (
            running_upstream() as (upstream, port),
            running_envoy(folder, processor.server.port, port) as envoy,
        ):
            yield Site(envoy, upstream)
            for trouble in ("spurious_msgs_received", "server_half_closed", "streams_failed"):
                assert await asyncio.to_thread(envoy.counter, trouble) == 0, trouble
    finally:
        await processor.stop()


def names(seen: Message | None) -> tuple[str | None, str | None]:
    """What the model server was told of the model and its base model."""
    assert seen is not None
    return seen.headers.get(MODEL), seen.headers.get(BASE)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"model": "foo", "prompt": "h\u00e9llo"}, ("foo", "qwen")),
        ({"model": "sql-lora-sheddable", "prompt": "x"}, ("sql-lora-sheddable", "qwen")),
        ({"model": 1, "prompt": "x"}, ("1", "qwen")),
        ({"model": "nobody", "prompt": "x"}, ("nobody", "")),
        ({"model": "", "prompt": "x"}, (None, "")),
        ({"prompt": "x"}, (None, None)),
    ],
    ids=["an adapter", "another adapter", "a number", "an unknown model", "an empty model", "no model"],
)
async def test_a_model_is_named_in_headers_and_the_body_keeps_its_bytes(
    site: Site, body: dict[str, Any], wanted: tuple[str | None, str | None]
) -> None:
    raw = json.dumps(body, ensure_ascii=False, indent=1).encode()
    for request in (post("/v1/completions", raw), post_chunked("/v1/completions", raw[:13], raw[13:])):
        answer, seen = await site.send(request)
        assert (answer.status, answer.body) == (200, raw)
        assert names(seen) == wanted
        assert seen is not None
        assert seen.body == raw
        assert seen.headers.get("content-length", str(len(raw))) == str(len(raw))


@pytest.mark.parametrize("cut", range(1, 24))
async def test_a_body_that_is_split_anywhere_is_that_body(site: Site, cut: int) -> None:
    raw = b'{"model":"foo","n":1.5}\n'
    answer, seen = await site.send(post_chunked("/v1/completions", raw[:cut], raw[cut:]))
    assert (answer.status, answer.body, names(seen)) == (200, raw, ("foo", "qwen"))


@pytest.mark.parametrize("body", [b"{", b"[]", b'"foo"', b'{"model": }', b"\xff"])
async def test_what_is_no_json_object_is_a_bad_request(site: Site, body: bytes) -> None:
    answer, seen = await site.send(post("/v1/completions", body))
    assert (answer.status, answer.headers["content-type"], seen) == (400, "application/json", None)
    error = json.loads(answer.body)["error"]
    assert error["message"].startswith("inference error: BadRequest - failed to parse request body: ")
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, None)


async def test_a_request_without_a_body_passes_untouched(site: Site) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nHost: gateway.example\r\nX-Mine: 1\r\nConnection: close\r\n\r\n"
    answer, seen = await site.send(request)
    assert (answer.status, answer.body) == (200, b'{"data":[]}')
    assert seen is not None
    assert (seen.start, seen.headers["x-mine"], names(seen)) == ("GET /v1/models HTTP/1.1", "1", (None, None))


async def test_a_stream_that_nobody_looks_at_arrives_as_it_is_produced(site: Site) -> None:
    """The server writes 2000 events and waits after each, so the first ones have not been held back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.envoy.ports[LISTENER])
    writer.write(post("/events", b'{"model":"foo"}').replace(b"Connection: close\r\n", b""))
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        came = b""
        while b'data: {"n":9}\n\n' not in came:
            size = int(await reader.readline(), 16)
            came += (await reader.readexactly(size + 2))[:-2]
    writer.close()
    events = [b'data: {"n":%d}\n\n' % number for number in range(2000)]
    assert came == b"".join(events)[: len(came)]
    assert len(came) < len(b"".join(events[:1000]))


MISTAKES = {
    "an unknown field": (("name: default", "name: default\n  colour: red"), "colour"),
    "an unknown type": (("type: base-model-to-header", "type: base-model-to-headr"), "did you mean"),
    "two of one name": (("type: base-model-to-header", "type: body-field-to-header"), "body-field-to-header"),
    "no profile": (("profiles:\n- name: default", "unused:\n- name: default"), "profiles"),
    "a scorer without a weight": (
        (
            "plugins: {request: [{pluginRef: body-field-to-header}",
            "plugins: {request: [{pluginRef: model-selector}, {pluginRef: cost-scorer}",
        ),
        "weight",
    ),
}


@pytest.mark.parametrize(("change", "said"), MISTAKES.values(), ids=MISTAKES)
async def test_a_configuration_with_a_mistake_ends_the_start(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    text = CONFIG.replace(*change)
    if "cost-scorer" in text:
        text = text.replace("plugins:\n", "plugins:\n- {type: model-selector}\n- {type: cost-scorer}\n", 1)
    assert text != CONFIG
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which is looked at below
        Processor(parse_args([*FLAGS, f"--config-file={file}"]))
    assert type(caught.value).__name__ == "ConfigErrors"
    assert said in str(caught.value)
