"""Answers of each API, whole and as streams, and what a client puts together from a stream."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

Texts = dict[str, str]
"""What is said, by channel."""
Pieces = list[tuple[str, str]]
"""The same as it comes: channel and piece."""

CHANNELS = {
    "chat": ["content 0", "reasoning 0", "args 0", "args 1", "content 1"],
    "completions": ["content 0", "content 1"],
    "anthropic": ["thinking 0", "content 1", "args 2"],
    "responses": ["content 0", "args 1"],
    "gemini": ["content 0"],
}
"""Of an API, what the streams of tests say; those of an Anthropic message or of items come one by one."""
ONE_BY_ONE = ("anthropic", "responses")


def whole(api: str, texts: Texts) -> dict[str, Any]:
    """An answer that says these."""
    say = texts.get
    if api == "chat":
        calls = [
            {
                "id": f"call_{n}",
                "type": "function",
                "function": {"name": "f", "arguments": texts[f"args {n}"]},
            }
            for n in (0, 1)
            if f"args {n}" in texts
        ]
        message = {"role": "assistant", "content": say("content 0", ""), "tool_calls": calls}
        message["reasoning_content"] = say("reasoning 0", "")
        second = {"role": "assistant", "content": say("content 1", "")}
        choices = [{"index": 0, "message": message}, {"index": 1, "message": second}]
        return {
            "id": "c",
            "object": "chat.completion",
            "model": "m",
            "choices": choices,
            "usage": {"total_tokens": 7},
        }
    if api == "completions":
        choices = [{"index": n, "text": say(f"content {n}", ""), "finish_reason": "stop"} for n in (0, 1)]
        return {"id": "c", "object": "text_completion", "model": "m", "choices": choices}
    if api == "anthropic":
        blocks = [
            {"type": "thinking", "thinking": say("thinking 0", "")},
            {"type": "text", "text": say("content 1", "")},
            {"type": "tool_use", "id": "t", "name": "f", "input": json.loads(say("args 2", "{}"))},
        ]
        return {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": blocks,
            "stop_reason": "end_turn",
        }
    if api == "responses":
        return {"id": "r", "object": "response", "status": "completed", "output": _items(texts)}
    parts = [{"text": say("content 0", "")}]
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]
    }


def _items(texts: Texts) -> list[dict[str, Any]]:
    part = {"type": "output_text", "text": texts.get("content 0", ""), "annotations": []}
    return [
        {"type": "message", "id": "i0", "role": "assistant", "content": [part]},
        {
            "type": "function_call",
            "id": "i1",
            "call_id": "c",
            "name": "f",
            "arguments": texts.get("args 1", "{}"),
        },
    ]


def read_whole(api: str, answer: dict[str, Any]) -> Texts:
    """What an answer says."""
    if api in ("chat", "completions"):
        texts = {}
        for choice in answer["choices"]:
            n, message = choice["index"], choice.get("message", choice)
            texts[f"content {n}"] = message.get("content", choice.get("text", ""))
            if "reasoning_content" in message:
                texts[f"reasoning {n}"] = message["reasoning_content"]
            for call in message.get("tool_calls", []):
                texts[f"args {call['id'].removeprefix('call_')}"] = call["function"]["arguments"]
        return texts
    if api == "anthropic":
        thinking, text, tool = answer["content"]
        return {
            "thinking 0": thinking["thinking"],
            "content 1": text["text"],
            "args 2": json.dumps(tool["input"]),
        }
    if api == "responses":
        message, call = answer["output"]
        return {"content 0": message["content"][0]["text"], "args 1": call["arguments"]}
    return {"content 0": answer["candidates"][0]["content"]["parts"][0]["text"]}


def events(api: str, pieces: Pieces) -> list[dict[str, Any] | str]:
    """The data of a stream's events."""
    return {
        "chat": _chat,
        "completions": _completions,
        "anthropic": _anthropic,
        "responses": _responses,
        "gemini": _gemini,
    }[api](pieces)


def _chunk(choices: list[dict[str, Any]], kind: str = "chat.completion.chunk", **more: Any) -> dict[str, Any]:
    return {"id": "c", "object": kind, "created": 1, "model": "m", "choices": choices, **more}


def _chat(pieces: Pieces) -> list[dict[str, Any] | str]:
    made: list[dict[str, Any] | str] = [_chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}}])]
    called = set()
    for channel, piece in pieces:
        name, n = channel.split()
        if name == "args":
            call: dict[str, Any] = {"index": int(n), "function": {"arguments": piece}}
            if channel not in called:
                call |= {"id": f"call_{n}", "type": "function"}
                call["function"]["name"] = "f"
            called.add(channel)
            choice = {"index": 0, "delta": {"tool_calls": [call]}}
        else:
            field = {"content": "content", "reasoning": "reasoning_content"}[name]
            choice = {"index": int(n), "delta": {field: piece}}
        made.append(_chunk([{**choice, "logprobs": None, "finish_reason": None}]))
    made += [_chunk([{"index": n, "delta": {}, "finish_reason": "stop"}]) for n in (0, 1)]
    return [*made, _chunk([], usage={"total_tokens": 7}), "[DONE]"]


def _completions(pieces: Pieces) -> list[dict[str, Any] | str]:
    made: list[dict[str, Any] | str] = []
    last = {channel: at for at, (channel, _) in enumerate(pieces)}
    for at, (channel, piece) in enumerate(pieces):
        reason = "stop" if last[channel] == at else None
        choice = {"index": int(channel.split()[1]), "text": piece, "finish_reason": reason}
        made.append(_chunk([choice], "text_completion"))
    return [*made, "[DONE]"]


def _anthropic(pieces: Pieces) -> list[dict[str, Any] | str]:
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 3}}
    made: list[dict[str, Any] | str] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    kinds = {
        "thinking": ({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking"),
        "content": ({"type": "text", "text": ""}, "text_delta", "text"),
        "args": (
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            "input_json_delta",
            "partial_json",
        ),
    }
    for channel in dict.fromkeys(channel for channel, _ in pieces):
        name, n = channel.split()
        block, kind, field = kinds[name]
        made.append({"type": "content_block_start", "index": int(n), "content_block": block})
        for piece in (piece for which, piece in pieces if which == channel):
            delta = {"type": kind, field: piece}
            made += [{"type": "content_block_delta", "index": int(n), "delta": delta}]
        made.append({"type": "content_block_stop", "index": int(n)})
    made.append(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    )
    return [*made, {"type": "message_stop"}]


def _responses(pieces: Pieces) -> list[dict[str, Any] | str]:
    response = {"id": "r", "object": "response", "status": "in_progress", "output": []}
    made: list[dict[str, Any] | str] = [{"type": "response.created", "response": response}]
    texts: Texts = defaultdict(str)
    for channel in dict.fromkeys(channel for channel, _ in pieces):
        name, n = channel.split()
        stem = {"content": "response.output_text", "args": "response.function_call_arguments"}[name]
        place = {
            "item_id": f"i{n}",
            "output_index": int(n),
            **({"content_index": 0} if name == "content" else {}),
        }
        for piece in (piece for which, piece in pieces if which == channel):
            texts[channel] += piece
            made.append({"type": f"{stem}.delta", **place, "delta": piece})
        field = {"content": "text", "args": "arguments"}[name]
        made.append({"type": f"{stem}.done", **place, field: texts[channel]})
        item = _items(texts)[int(n)]
        made.append({"type": "response.output_item.done", "output_index": int(n), "item": item})
    done = whole("responses", texts) | {"usage": {"total_tokens": 7}}
    return [*made, {"type": "response.completed", "response": done}]


def _gemini(pieces: Pieces) -> list[dict[str, Any] | str]:
    made: list[dict[str, Any] | str] = []
    for at, (_, piece) in enumerate(pieces):
        content = {"role": "model", "parts": [{"text": piece}]}
        reason = {"finishReason": "STOP"} if at == len(pieces) - 1 else {}
        made.append({"candidates": [{"content": content, "index": 0, **reason}], "modelVersion": "m"})
    return made


def encoded(data: list[dict[str, Any] | str], end: str, *, ascii_only: bool) -> list[bytes]:
    """The events as they are sent; ``end`` is the line end."""
    made = []
    for value in data:
        said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=ascii_only)
        kind = value.get("type") if isinstance(value, dict) else None
        name = f"event: {kind}{end}" if kind else ""
        made.append(f"{name}data: {said}{end}{end}".encode())
    return made


def data_of(sent: bytes) -> list[Any]:
    """What a client reads: the data of whole events, decoded; every one of them is valid."""
    found = []
    for block in re.split("\n\n", sent.decode().replace("\r\n", "\n").replace("\r", "\n")):
        lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        if lines:
            said = "\n".join(lines)
            found.append(said if said == "[DONE]" else json.loads(said))
    return found


def read_stream(api: str, sent: bytes) -> Texts:
    """What a client puts together of what was sent."""
    texts: Texts = defaultdict(str)
    for value in data_of(sent):
        if not isinstance(value, dict):
            continue
        for choice in value.get("choices", []):
            n, delta = choice["index"], choice.get("delta", {})
            texts[f"content {n}"] += choice.get("text") or delta.get("content") or ""
            texts[f"reasoning {n}"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                texts[f"args {call['index']}"] += call["function"]["arguments"]
        for candidate in value.get("candidates", []):
            for part in candidate.get("content", {}).get("parts", []):
                texts["content 0"] += part["text"]
        kind = value.get("type", "")
        if kind == "content_block_delta":
            delta, n = value["delta"], value["index"]
            for name, field in (("thinking", "thinking"), ("content", "text"), ("args", "partial_json")):
                texts[f"{name} {n}"] += delta.get(field, "")
        if kind == "response.output_text.delta":
            texts["content 0"] += value["delta"]
        if kind == "response.function_call_arguments.delta":
            texts["args 1"] += value["delta"]
    return {channel: text for channel, text in texts.items() if text}
