"""What a request has cost arrives as dynamic metadata with the last answer about the response's body."""

from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from tests.support.black_box import (
    DEFAULT_PROFILE,
    Pod,
    Site,
    request_body,
    request_headers,
    response_body,
    response_headers,
    response_trailers,
    streamed,
)

pytestmark = pytest.mark.integration

CONFIG = DEFAULT_PROFILE.replace(
    "schedulingProfiles:",
    """- type: request-attribute-reporter
  parameters:
    attributes:
    - key: {name: x-gateway-inference-request-cost}
      expression: usage.completion_tokens
schedulingProfiles:""",
)
COST = {"envoy.lb": {"x-gateway-inference-request-cost": 10}}
ASKED = (request_headers(), request_body({"model": "m", "prompt": "p"}, end=True))

JSON = b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}}'
EVENTS = (
    b'data: {"choices": []}\n\n',
    b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}}\n\n',
    b"data: [DONE]\n\n",
)


async def told(folder: Path, content_type: str, *messages: object, config: str = CONFIG) -> list[dict]:
    """The metadata of every answer about the response's body and trailers."""
    async with Site(folder, Pod(), config=config) as site:
        head = response_headers(("content-type", content_type))
        answers = await site.converse(*ASKED, head, *messages)
    kinds = ("response_body", "response_trailers")
    return [MessageToDict(a.dynamic_metadata) for a in answers if a.WhichOneof("response") in kinds]


async def test_of_a_json_response(tmp_path: Path):
    cut = 30
    found = await told(
        tmp_path, "application/json", response_body(JSON[:cut]), response_body(JSON[cut:], end=True)
    )
    assert found == [{}, COST]


@pytest.mark.parametrize("empty_end", [False, True])
async def test_of_an_event_stream(tmp_path: Path, empty_end: bool):
    messages = [response_body(event) for event in EVENTS]
    if empty_end:
        messages.append(response_body(b"", end=True))
    else:
        messages[-1] = response_body(EVENTS[-1], end=True)
    found = await told(tmp_path, "text/event-stream", *messages)
    assert found == [*[{}] * (len(messages) - 1), COST]


async def test_of_a_response_that_ends_in_trailers(tmp_path: Path):
    found = await told(tmp_path, "application/json", response_body(JSON), response_trailers(("x", "y")))
    assert found == [{}, COST]


async def test_a_response_without_usage_says_nothing_and_is_not_changed(tmp_path: Path):
    async with Site(tmp_path, Pod(), config=CONFIG) as site:
        head = response_headers(("content-type", "application/json"))
        answers = await site.converse(*ASKED, head, response_body(b'{"choices": []}', end=True))
    assert streamed(answers, "response_body") == (b'{"choices": []}', [True])
    assert MessageToDict(answers[-1].dynamic_metadata) == {}


async def test_without_the_plugin_nothing_is_said(tmp_path: Path):
    found = await told(tmp_path, "application/json", response_body(JSON, end=True), config=DEFAULT_PROFILE)
    assert found == [{}]
