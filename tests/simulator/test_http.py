"""A replica over HTTP: shapes, errors, limits, digests of what arrived, clients that leave."""

import asyncio
import hashlib
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from simulator.app import Fleet
from simulator.call import MAX_ECHOED_BYTES, received_headers
from tests.simulator.driving import AT_ONCE, FOREVER, eventually, running_fleet, samples


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with running_fleet(
        replicas=2,
        max_request_body_size_mb=1,
        max_model_len=4096,
        lora_modules=[],
        enable_request_id_headers=True,
    ) as fleet:
        yield fleet


@pytest.fixture
async def http(fleet: Fleet) -> AsyncIterator[aiohttp.ClientSession]:
    replica = fleet.replicas[0]
    async with aiohttp.ClientSession(f"http://{replica.address}:{replica.port}") as session:
        yield session


async def settled(fleet: Fleet) -> None:
    """Wait until no replica has work or blocks in use."""
    engines = [replica.server.engine for replica in fleet.replicas]
    await eventually(lambda: not any(engine.running or engine.waiting for engine in engines))
    assert [replica.server.engine.cache.used for replica in fleet.replicas] == [0] * len(fleet.replicas)


async def raw(fleet: Fleet, request: bytes) -> bytes:
    """Send bytes, return what comes back until the server closes."""
    replica = fleet.replicas[0]
    reader, writer = await asyncio.open_connection(replica.address, replica.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/completions", b"{", 400, None),
        ("/v1/completions", b"", 400, None),
        ("/v1/completions", b'{"prompt": "\xff"}', 400, None),
        ("/v1/completions", b"[" * 5000, 400, None),
        ("/v1/completions", b"[]", 400, None),
        ("/v1/completions", b"{}", 400, None),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": 0}', 400, "max_tokens"),
        ("/v1/completions", b'{"prompt": "a", "n": 0}', 400, "n"),
        ("/v1/completions", b'{"prompt": ["a", "b"], "n": 65}', 400, "n"),
        ("/v1/completions", b'{"prompt": "a", "stream": "yes"}', 400, "stream"),
        ("/v1/completions", b'{"prompt": []}', 400, "prompt"),
        ("/v1/completions", b'{"prompt": ""}', 400, None),
        ("/v1/completions", b'{"prompt": [-1]}', 400, None),
        ("/v1/completions", b'{"prompt": [1, "a"]}', 400, None),
        ("/v1/completions", b'{"prompt": [1.5]}', 400, None),
        ("/v1/completions", b'{"prompt": [18446744073709551616]}', 400, None),
        ("/v1/completions", b'{"prompt": {"a": 1}}', 400, "prompt"),
        ("/v1/completions", b'{"prompt": "a", "max_tokens": 4096}', 400, "max_tokens"),
        ("/v1/completions", json.dumps({"prompt": "a" * 4 * 4096}).encode(), 400, None),
        ("/v1/completions", b'{"prompt": "a", "model": "other"}', 404, "model"),
        ("/v1/chat/completions", b'{"messages": []}', 400, "messages"),
        ("/v1/chat/completions", b'{"messages": [{"content": "a"}]}', 400, "messages[0]"),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": 5}]}',
            400,
            "messages[0].content",
        ),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": [{"type": "smell"}]}]}',
            400,
            None,
        ),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": "a"}], "ignore_eos": true}',
            400,
            "ignore_eos",
        ),
        ("/v1/embeddings", b'{"input": "a", "encoding_format": "hex"}', 400, "encoding_format"),
        ("/v1/embeddings", b'{"input": "a", "dimensions": 0}', 400, "dimensions"),
        ("/tokenize", b"{}", 400, "prompt"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_bad_request_is_a_json_error_and_starts_nothing(
    fleet: Fleet, http: aiohttp.ClientSession, path: str, body: bytes, status: int, param: str | None
):
    async with http.post(path, data=body) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"], error["param"]) == (status, status, param)
    assert error["message"]
    engine = fleet.replicas[0].server.engine
    assert (engine.running, len(engine.waiting), engine.cache.used) == ([], 0, 0)


async def test_unknown_path_and_method_are_told(http: aiohttp.ClientSession):
    async with http.get("/v1/nothing") as response:
        assert (response.status, await response.json()) == (404, {"detail": "Not Found"})
    async with http.get("/v1/completions") as response:
        assert (response.status, response.headers["allow"]) == (405, "POST")


async def test_health_version_models_tokenize(http: aiohttp.ClientSession):
    async with http.get("/health") as response:
        assert (response.status, await response.read()) == (200, b"")
    async with http.get("/version") as response:
        assert await response.json() == {"version": "pointsman-sim"}
    async with http.get("/v1/models") as response:
        (model,) = (await response.json())["data"]
        assert (model["id"], model["owned_by"], model["max_model_len"]) == ("base", "vllm", 4096)
    async with http.post("/tokenize", json={"prompt": "abcdef"}) as response:
        answer = await response.json()
        assert (answer["count"], answer["max_model_len"]) == (2, 4096)
        assert answer["tokens"] == [0x64636261, 0x6665]


async def test_rendered_prompts_are_those_that_generate(http: aiohttp.ClientSession):
    chat = {"model": "base", "messages": [{"role": "user", "content": "what is a pointsman?"}]}
    async with http.post("/v1/chat/completions/render", json=chat) as response:
        rendered = await response.json()
    async with http.post("/tokenize", json=chat) as response:
        assert rendered["token_ids"] == (await response.json())["tokens"]
    assert rendered["model"] == "base"
    async with http.post("/v1/completions/render", json={"prompt": ["abcd", "abcdef", "x"]}) as response:
        prompts = await response.json()
    assert [prompt["token_ids"] for prompt in prompts] == [[0x64636261], [0x64636261, 0x6665], [0x78]]
    async with http.post("/v1/completions/render", json={"model": "nobody", "prompt": "x"}) as response:
        assert response.status == 404


async def test_tokens_from_tokenize_are_the_prompts_tokens(http: aiohttp.ClientSession):
    messages = [{"role": "user", "content": "what is a pointsman? " * 8}]
    async with http.post("/tokenize", json={"messages": messages}) as response:
        tokens = (await response.json())["tokens"]
    async with http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1}) as response:
        assert (await response.json())["usage"]["prompt_tokens"] == len(tokens)
    async with http.post("/v1/completions", json={"prompt": tokens, "max_tokens": 1}) as response:
        usage = (await response.json())["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == (len(tokens) - 1) // 16 * 16


async def test_content_parts_images_and_tools_are_part_of_the_prompt(http: aiohttp.ClientSession):
    text = [{"type": "text", "text": "abcd"}]
    image = {"type": "image_url", "image_url": {"url": "http://a/1.png"}}
    sizes = []
    for content, tools in ((text, None), ([*text, image], None), (text, [{"type": "function"}])):
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "tools": tools}
        async with http.post("/v1/chat/completions", json=body) as response:
            sizes.append((await response.json())["usage"]["prompt_tokens"])
    assert sizes == [4, 4 + 225, 4 + 1 + 6 + 1]


async def test_every_answer_tells_which_replica_it_is_from(fleet: Fleet):
    for replica in fleet.replicas:
        async with aiohttp.ClientSession(f"http://{replica.address}:{replica.port}") as http:
            for path in ("/health", "/nothing", "/metrics"):
                async with http.get(path) as response:
                    assert response.headers["x-inference-pod"] == replica.name
                    assert response.headers["x-inference-port"] == str(replica.port)


async def test_request_id_is_kept_when_asked_for(http: aiohttp.ClientSession):
    async with http.post(
        "/v1/completions", json={"prompt": "a"}, headers={"X-Request-Id": 'id-"1"'}
    ) as response:
        assert response.headers["x-request-id"] == 'id-"1"'
        assert (await response.json())["id"] == 'cmpl-id-"1"'


async def test_request_id_that_is_no_text_is_replaced(fleet: Fleet):
    request = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 14\r\n"
    answer = await raw(fleet, request + b'X-Request-Id: \xff\xfe\r\n\r\n{"prompt":"a"}')
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"x-request-id" not in answer.lower()


@pytest.mark.parametrize("size", [0, 1, 62_000, 65_536, 1 << 20], ids=str)
async def test_digest_tells_what_arrived(http: aiohttp.ClientSession, size: int):
    body = bytes(index % 251 for index in range(size))
    headers = {"x-echo-digest": "1", "X-Mixed-Case": "Value é"}
    async with http.post("/v1/completions", data=body, headers=headers) as response:
        told = response.headers
    assert response.status == 400
    assert (told["x-body-sha256"], told["x-body-bytes"]) == (hashlib.sha256(body).hexdigest(), str(size))
    pairs = json.loads(told["x-received-headers"])
    assert ["x-echo-digest", "1"] in pairs
    assert ["X-Mixed-Case", "Value é".encode().decode("latin-1")] in pairs
    assert "x-received-headers-cut" not in told


async def test_no_digest_unless_asked(http: aiohttp.ClientSession):
    async with http.post("/v1/completions", json={"prompt": "a"}) as response:
        assert "x-body-sha256" not in response.headers


def test_told_headers_are_cut_to_a_size_every_client_reads():
    pairs = ((b"a", b"x" * 1000), *((b"name-%d" % n, b"\xe9" * 100) for n in range(100)), (b"z", b"1"))
    told, cut = received_headers(pairs)
    shown = json.loads(told)
    assert len(told) <= MAX_ECHOED_BYTES
    assert told.isascii()
    assert shown[0] == ["a", "x" * 512]
    assert cut == 1 + len(pairs) - len(shown)


async def test_body_over_the_cap_is_refused_whether_announced_or_not(
    fleet: Fleet, http: aiohttp.ClientSession
):
    async with http.post("/v1/completions", data=io.BytesIO(bytes((1 << 20) + 1))) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (413, 413)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield bytes(1 << 16)

    async with http.post("/v1/completions", data=chunks()) as response:
        assert response.status == 413


async def test_broken_requests_get_400_and_disturb_nobody(fleet: Fleet, http: aiohttp.ClientSession):
    for request in (
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: abc\r\n\r\n",
    ):
        assert (await raw(fleet, request)).startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), request
    async with http.get("/health") as response:
        assert response.status == 200


async def test_client_of_http_1_0_gets_an_unframed_stream(fleet: Fleet):
    body = b'{"prompt": "a", "max_tokens": 3, "stream": true, "ignore_eos": true}'
    answer = await raw(
        fleet, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    head, _, events = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert events.startswith(b"data: {")
    assert events.count(b"data: ") == 4
    assert events.endswith(b"data: [DONE]\n\n")


async def test_expectation_of_continue_is_met(fleet: Fleet):
    replica = fleet.replicas[0]
    reader, writer = await asyncio.open_connection(replica.address, replica.port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        b"Expect: 100-continue\r\nContent-Length: 15\r\n\r\n"
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b'{"prompt": "a"}')
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_client_that_leaves_frees_its_blocks(stream: bool):
    async with running_fleet(inter_token_latency=FOREVER, time_to_first_token=AT_ONCE) as fleet:
        replica = fleet.replicas[0]
        engine = replica.server.engine
        async with aiohttp.ClientSession(f"http://{replica.address}:{replica.port}") as http:
            body = {"prompt": "a" * 400, "max_tokens": 50, "ignore_eos": True, "stream": stream}
            request = asyncio.create_task(http.post("/v1/completions", json=body))
            await eventually(lambda: bool(engine.running))
            assert engine.cache.used == 7
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        await settled(fleet)
        counted = samples(replica.server.metrics.render(engine))
        assert counted["vllm:request_success_total{finished_reason=abort}"] == 1
        assert counted["vllm:num_requests_running"] == 0


async def test_full_queue_is_429_with_retry_after():
    async with running_fleet(
        max_num_seqs=1, max_waiting_queue_length=1, time_to_first_token=FOREVER
    ) as fleet:
        replica = fleet.replicas[0]
        async with aiohttp.ClientSession(f"http://{replica.address}:{replica.port}") as http:
            taken = [
                asyncio.create_task(http.post("/v1/completions", json={"prompt": "a"})) for _ in range(2)
            ]
            engine = replica.server.engine
            await eventually(lambda: len(engine.running) + len(engine.waiting) == 2)
            async with http.post("/v1/completions", json={"prompt": "a"}) as response:
                assert (response.status, response.headers["retry-after"]) == (429, "1")
                assert (await response.json())["error"]["type"] == "TooManyRequestsError"
            for request in taken:
                request.cancel()
            await asyncio.gather(*taken, return_exceptions=True)
        await settled(fleet)


async def test_slow_reader_gets_the_whole_text_without_holding_anyone_up(fleet: Fleet):
    replica = fleet.replicas[0]
    reader, writer = await asyncio.open_connection(replica.address, replica.port, limit=1024)
    body = json.dumps({"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    await settled(fleet)
    answer = await reader.read()
    events = [line[6:] for line in answer.split(b"\n") if line.startswith(b"data: {")]
    text = "".join(json.loads(event)["choices"][0]["text"] for event in events)
    assert len(text) == 16_000
    writer.close()
    await writer.wait_closed()
