"""Answers that are judged whole: collected while they come, and what takes the place of one that is withheld.

A withheld answer has the shape of the API it comes from, no text, the reason that this API has for filtered
content, and its usage, which is paid for whatever the client gets. The error says who withheld it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dataplane.extproc.events import EndBody, LaterBody
from ipp.guardrails.verdicts import ERROR_TYPE, Outcome, Refusal, Verdict, unreadable

MAX_ANSWER_BYTES: Final = 32 << 20
"""Of an answer that is collected; embeddings of a large batch are some MiB."""

_KEPT: Final = (
    "id",
    "object",
    "type",
    "role",
    "created",
    "created_at",
    "model",
    "usage",
    "system_fingerprint",
)
_KEPT_OF_GEMINI: Final = ("usageMetadata", "modelVersion", "responseId")


def error_of(refusal: Refusal) -> dict[str, Any]:
    """The error object within bodies and events, in OpenAI's shape."""
    return {
        "message": refusal.message,
        "type": ERROR_TYPE,
        "param": refusal.param or None,
        "code": refusal.code,
    }


def withheld(answer: Any, refusal: Refusal) -> bytes:
    """What the client gets instead of this answer."""
    if not isinstance(answer, Mapping):
        return refusal.body()
    kept = {name: answer[name] for name in _KEPT if name in answer}
    if isinstance(answer.get("choices"), list):
        said: dict[str, Any] = {
            "choices": [_choice(at, choice) for at, choice in enumerate(answer["choices"])]
        }
    elif answer.get("type") == "message":
        said = {"content": [], "stop_reason": "refusal", "stop_sequence": None}
    elif answer.get("object") == "response":
        reason = {"incomplete_details": {"reason": "content_filter"}}
        said = {"status": "incomplete", **reason, "output": []}
    elif isinstance(answer.get("candidates"), list):
        kept = {name: answer[name] for name in _KEPT_OF_GEMINI if name in answer}
        indices = range(len(answer["candidates"]))
        said = {"candidates": [{"index": index, "finishReason": "SAFETY"} for index in indices]}
    else:
        return refusal.body()
    return msgspec.json.encode({**kept, **said, "error": error_of(refusal)})


def _choice(at: int, choice: Any) -> dict[str, Any]:
    is_chat = isinstance(choice, Mapping) and "message" in choice
    index = choice.get("index", at) if isinstance(choice, Mapping) else at
    said = {"message": {"role": "assistant", "content": ""}} if is_chat else {"text": ""}
    return {"index": index, **said, "logprobs": None, "finish_reason": "content_filter"}


class AnswerGuard:
    """Holds an answer back until it is whole, and sends on what the policy makes of it."""

    def __init__(
        self,
        check: Callable[[bytes], Outcome],
        told: Callable[[Sequence[Verdict]], None] | None,
        ask: Callable[[Outcome, Callable[[Outcome], None]], None] | None = None,
    ) -> None:
        """``ask`` starts the asking of others, who judge what is left, and calls what it is given once."""
        self._check = check
        self._told = told
        self._ask = ask
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes, end: bool) -> bytes:
        """Nothing until the end, and then the answer, or ``LaterBody`` when others are asked about it."""
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            self._pieces.clear()
            raise EndBody(unreadable(f"has more than {MAX_ANSWER_BYTES} bytes", "response").body())
        if not end:
            return b""
        body = b"".join(self._pieces)
        self._pieces.clear()
        if not body:
            return body
        outcome = self._check(body)
        ask = self._ask
        if ask is None or outcome.action == "block":
            return self._settled(outcome)
        raise LaterBody(lambda take: ask(outcome, lambda settled: take(self._settled(settled))))

    def _settled(self, outcome: Outcome) -> bytes:
        if self._told is not None and outcome.verdicts:
            self._told(outcome.verdicts)
        return outcome.body
