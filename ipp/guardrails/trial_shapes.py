"""A text as each API carries it: in a request, in a whole answer, and in the events of a streamed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

Dialect = Literal["chat", "completions", "responses", "messages", "gemini", "embeddings"]
Json = dict[str, Any]


class Shape(NamedTuple):
    """Of one API. Texts are read back from where they were put."""

    request: Callable[[str], Json]
    asked: Callable[[Json], str]
    """The text of such a request."""
    answer: Callable[[str], Json] | None
    """None = the API answers with no text."""
    said: Callable[[Json], str]
    """The text of such an answer."""
    event: Callable[[str], Json]
    """Of a stream, with a piece of the text."""
    heard: Callable[[Mapping[str, Any]], str]
    """The piece of text in any event of the stream."""
    before: tuple[Json, ...] = ()
    """Events before the text."""
    after: tuple[Json, ...] = ()
    """Events behind it."""


def _choices(event: Mapping[str, Any]) -> Iterator[Any]:
    yield from event.get("choices") or ()


def _chat_event(piece: str) -> Json:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}],
    }


def _completions_event(piece: str) -> Json:
    return {"object": "text_completion", "choices": [{"index": 0, "text": piece, "finish_reason": None}]}


def _gemini(piece: str) -> Json:
    content = {"role": "model", "parts": [{"text": piece}]}
    return {"candidates": [{"index": 0, "content": content}]}


def _gemini_said(value: Mapping[str, Any]) -> str:
    return "".join(
        part.get("text", "")
        for candidate in value.get("candidates") or ()
        for part in (candidate.get("content") or {}).get("parts", ())
    )


_ITEM: Final = {"item_id": "msg", "output_index": 0, "content_index": 0}
_COMPLETED: Final[Json] = {"object": "response", "status": "completed", "output": []}
SHAPES: Final[dict[Dialect, Shape]] = {
    "chat": Shape(
        request=lambda text: {"messages": [{"role": "user", "content": text}]},
        asked=lambda body: str(body["messages"][0]["content"]),
        answer=lambda text: {
            "object": "chat.completion",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            ],
        },
        said=lambda body: str(body["choices"][0]["message"]["content"]),
        event=_chat_event,
        heard=lambda event: "".join(
            choice.get("delta", {}).get("content") or "" for choice in _choices(event)
        ),
        after=(
            {
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            },
        ),
    ),
    "completions": Shape(
        request=lambda text: {"prompt": text},
        asked=lambda body: str(body["prompt"]),
        answer=lambda text: {
            "object": "text_completion",
            "choices": [{"index": 0, "text": text, "finish_reason": "stop"}],
        },
        said=lambda body: str(body["choices"][0]["text"]),
        event=_completions_event,
        heard=lambda event: "".join(choice.get("text") or "" for choice in _choices(event)),
        after=(
            {"object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]},
        ),
    ),
    "responses": Shape(
        request=lambda text: {"input": text},
        asked=lambda body: str(body["input"]),
        answer=lambda text: {
            "object": "response",
            "status": "completed",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                }
            ],
        },
        said=lambda body: str(body["output"][0]["content"][0]["text"]),
        event=lambda piece: {"type": "response.output_text.delta", **_ITEM, "delta": piece},
        heard=lambda event: (
            str(event.get("delta") or "") if event.get("type") == "response.output_text.delta" else ""
        ),
        before=({"type": "response.created", "response": {"object": "response", "output": []}},),
        after=({"type": "response.completed", "response": _COMPLETED},),
    ),
    "messages": Shape(
        request=lambda text: {"max_tokens": 1024, "messages": [{"role": "user", "content": text}]},
        asked=lambda body: str(body["messages"][0]["content"]),
        answer=lambda text: {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
        },
        said=lambda body: str(body["content"][0]["text"]),
        event=lambda piece: {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": piece},
        },
        heard=lambda event: (
            str(event["delta"].get("text") or "") if event.get("type") == "content_block_delta" else ""
        ),
        before=({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},),
        after=(
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ),
    ),
    "gemini": Shape(
        request=lambda text: {"contents": [{"role": "user", "parts": [{"text": text}]}]},
        asked=lambda body: str(body["contents"][0]["parts"][0]["text"]),
        answer=_gemini,
        said=_gemini_said,
        event=_gemini,
        heard=_gemini_said,
        after=({"candidates": [{"index": 0, "finishReason": "STOP"}]},),
    ),
    "embeddings": Shape(
        request=lambda text: {"input": text},
        asked=lambda body: str(body["input"]),
        answer=None,
        said=str,
        event=_chat_event,
        heard=str,
    ),
}
"""By the name a trial gives."""
