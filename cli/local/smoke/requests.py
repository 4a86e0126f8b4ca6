"""Single requests: what is listed, what is refused and how, what arrives at the model server unchanged."""

import asyncio
import hashlib
import json
from urllib.parse import urlsplit

import aiohttp

from cli.local.metrics import pool_status, scrape
from cli.local.smoke.context import Answer, Context, chat, distinct_text, expect, same, until
from controlplane.xds.envoy.listener import FORGEABLE_HEADERS
from dataplane.headers import DESTINATION_ENDPOINT
from dataplane.processes.ports import LOOPBACK
from simulator.headers import BODY_BYTES, BODY_SHA256, POD, RECEIVED_HEADERS

CHAT = "/v1/chat/completions"
MIB = 1024 * 1024

BODY_SIZES = (0, 2, 62_000, 62_001, 65_536, 4 * MIB - 1, 4 * MIB + 1, 5_000_000, 10 * MIB)
"""Around the sizes where chunks, gRPC messages and buffers end; the smallest are nothing and ``{}``."""

UNPARSED = "/unparsed"
"""A path no parser knows: such a body is passed on, and the model server answers 404."""


async def models_listed(context: Context) -> str:
    """`GET /v1/models` lists the models of all pools."""
    answer = await context.get(f"{context.url}/v1/models")
    found = [model["id"] for model in answer.json()["data"]]
    same("the list", found, [name for pool in context.pools for name in pool.names])
    return ", ".join(found)


async def malformed_json(context: Context) -> str:
    """A body that is no JSON is refused with 400 and the place of the mistake."""
    answer = await context.post(CHAT, b'{"model": "x", "messages": [}')
    return refused(answer, 400, None)


async def missing_model(context: Context) -> str:
    """A body without a model is refused with 400."""
    answer = await context.post(CHAT, {"messages": []})
    return refused(answer, 400, None)


async def unknown_model(context: Context) -> str:
    """A model nobody serves is refused with 404."""
    answer = await context.post(CHAT, chat("no-such-model", "?"))
    return refused(answer, 404, "model_not_found")


async def unknown_path(context: Context) -> str:
    """What is no inference request is refused with 404, in JSON too."""
    return refused(await context.get(f"{context.url}/nowhere"), 404, "unknown_url")


async def oversize_body(context: Context) -> str:
    """A body over the cap is refused with 413, and the next request is served."""
    body = sized_body(context.pools[0].models[0], context.target.max_body_bytes + MIB)
    detail = refused(await context.post(CHAT, body), 413, "request_too_large")
    after = await context.post(CHAT, chat(context.pools[0].models[0], "still there?", max_tokens=1))
    same("status of the next request", after.status, 200)
    return detail


def refused(answer: Answer, status: int, code: str | None) -> str:
    """Check a refusal and return its message."""
    same("status", answer.status, status)
    error = answer.error()
    if code is not None:
        same("code", error["code"], code)
    return f"{status}: {error['message']}"


async def bodies_unchanged(context: Context) -> str:
    """Bodies of all sizes arrive byte for byte."""
    model = context.pools[0].models[0]
    for size in BODY_SIZES:
        path, body, status = (
            (CHAT, sized_body(model, size), 200) if size > 2 else (UNPARSED, b"{}"[:size], 404)
        )
        answer = await context.post(path, body, x_echo_digest="1")
        same(f"{size} bytes: status", answer.status, status)
        same(f"{size} bytes: received", answer.headers.get(BODY_BYTES), str(size))
        same(f"{size} bytes: digest", answer.headers.get(BODY_SHA256), hashlib.sha256(body).hexdigest())
    return f"{len(BODY_SIZES)} sizes up to {BODY_SIZES[-1]} bytes"


async def chunked_body(context: Context) -> str:
    """A chunked body with trailers arrives whole, once, and without the trailers."""
    body = json.dumps(chat(context.pools[0].models[0], "in chunks", max_tokens=1)).encode()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:8], body[8:]))
    head = f"POST {CHAT} HTTP/1.1\r\nhost: gateway\r\ntransfer-encoding: chunked\r\nx-echo-digest: 1\r\n"
    reader, writer = await asyncio.open_connection(*host_and_port(context.url))
    try:
        writer.write(head.encode() + b"connection: close\r\n\r\n" + chunks + b"0\r\nx-late: 1\r\n\r\n")
        await writer.drain()
        answer = (await reader.read()).decode(errors="replace")
    finally:
        writer.close()
    expect(answer.startswith("HTTP/1.1 200 "), f"answered {answer[:200]!r}")
    digest = hashlib.sha256(body).hexdigest()
    expect(f"{BODY_SHA256}: {digest}" in answer, "another body arrived")
    expect("x-late" not in answer, "the trailer arrived")
    return f"{len(body)} bytes in 3 chunks"


def host_and_port(url: str) -> tuple[str, int]:
    """Return host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80


def sized_body(model: str, size: int) -> bytes:
    """A chat completion of exactly `size` bytes: a short prompt, and a field that is all padding."""
    body = json.dumps(chat(model, "short", max_tokens=1, user="")).encode()
    return body.replace(b'"user": ""', b'"user": "' + b"p" * (size - len(body)) + b'"')


async def forged_headers(context: Context) -> str:
    """Control headers a client sends reach neither picker nor model server."""
    forged = "127.0.0.1:1"
    names = {name.replace("-", "_"): forged for name in FORGEABLE_HEADERS}
    body = chat(context.pools[0].models[0], "forged", max_tokens=1)
    answer = await context.post(CHAT, body, x_echo_digest="1", **names)
    same("status", answer.status, 200)
    received = json.loads(answer.headers[RECEIVED_HEADERS])
    same("forged values that arrived", [pair for pair in received if forged in pair[1]], [])
    picked = [value for name, value in received if name == DESTINATION_ENDPOINT]
    expect(len(picked) <= 1, f"several destinations arrived: {picked}")
    return f"{len(names)} headers removed"


async def client_abort(context: Context) -> str:
    """A client that leaves in the middle of a stream leaves nothing running behind."""
    pool = context.pools[0]
    body = chat(pool.models[0], distinct_text(50), max_tokens=4000, stream=True)
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(context.url + CHAT, json=body) as answer,
    ):
        same("status", answer.status, 200)
        pod = answer.headers[POD]
        await answer.content.readany()
        answer.close()

    async def idle() -> bool:
        status = pool_status(pool, await scrape(context.session, pool))
        return status.is_up and status.running == 0

    waited = await until(idle, "no request running in the picker", timeout_s=10)
    return f"left {pod} in the middle; nothing running after {waited:.2f} s"


async def protocol_clean(context: Context) -> str:
    """Envoy has not seen a message out of order, nor a stream the picker ended early."""
    found = await protocol_counters(context)
    stats = {name: value - context.protocol.get(name, 0) for name, value in found.items()}
    for name in (
        "spurious_msgs_received",
        "server_half_closed",
        "rejected_header_mutations",
        "message_timeouts",
    ):
        same(name, stats[name], 0)
    return f"{stats['streams_started']} streams, {stats['stream_msgs_received']} messages from the pickers"


async def protocol_counters(context: Context) -> dict[str, int]:
    """Counters of Envoy's ext_proc filter."""
    url = f"http://{LOOPBACK}:{context.target.admin_port}/stats?format=json&filter=ext_proc"
    counters = (await context.get(url)).json()["stats"]
    return {counter["name"].rpartition(".")[2]: counter["value"] for counter in counters}


async def decision_explained(context: Context) -> str:
    """The picker says why it picked the endpoint that answered."""
    pool = context.pools[0]
    request_id = f"smoke-{distinct_text(1)}"
    answer = await context.post(CHAT, chat(pool.models[0], "why?", max_tokens=1), x_request_id=request_id)
    same("status", answer.status, 200)
    url = f"http://{LOOPBACK}:{pool.metrics_port}/debug/decisions"

    async def recorded() -> bool:
        return request_id.encode() in (await context.get(url)).body

    await until(recorded, f"{request_id} in {url}", timeout_s=5)
    return f"{request_id} -> {answer.headers[POD]}"
