"""Answers that are judged whole: collected while they come, and what takes the place of one that is withheld.

A withheld answer has the shape of the API it comes from, no text, the reason that this API has for filtered
content, and its usage, which is paid for whatever the client gets. The error says who withheld it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Protocol

import msgspec

from dataplane.extproc.events import EndBody, LaterBody
from ipp.guardrails.lengths import ASIDE_BYTES
from ipp.guardrails.verdicts import ERROR_TYPE, UNAVAILABLE, Outcome, Refusal, Verdict, unreadable

MAX_ANSWER_BYTES: Final = 32 << 20
"""Of an answer that is collected; embeddings of a large batch are some MiB."""
CHARGED_BYTES: Final = 64 << 10
"""Of an answer that is being collected, what need not be counted."""
FULL: Final = Refusal(
    UNAVAILABLE, "Too many answers are being looked at by guardrails; try again.", status=503
)
FAILED: Final = Refusal(UNAVAILABLE, "The answer could not be judged.", status=503)

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


class Later(Protocol):
    """Looks at what takes long beside the event loop, and keeps an eye on what waits in memory."""

    def charge(self, size: int) -> bool:
        """Note that so many bytes more are held, less when negative; False when that is too much."""

    def judge(
        self, check: Callable[[], Outcome], take: Callable[[Outcome], None], refusal: Refusal, size: int
    ) -> None:
        """Have ``take`` called with what ``check`` finds, or with the refusal when it fails.

        ``size``: bytes that are looked at.
        """


class AnswerGuard:
    """Holds an answer back until it is whole, and sends on what the policy makes of it."""

    def __init__(
        self,
        check: Callable[[bytes], Outcome],
        told: Callable[[Sequence[Verdict]], None] | None,
        ask: Callable[[Outcome, Callable[[Outcome], None]], None] | None = None,
        later: Later | None = None,
        is_long: Callable[[bytes], bool] = lambda body: len(body) > ASIDE_BYTES,
    ) -> None:
        """``ask`` starts the asking of others, who judge what is left, and calls what it is given once."""
        self._check = check
        self._told = told
        self._ask = ask
        self._later = later
        self._is_long = is_long
        self._pieces: list[bytes] = []
        self._size = 0
        self._charged = 0

    def __del__(self) -> None:
        self._release()  # an exchange that ends early just lets go of its guard

    def feed(self, chunk: bytes, end: bool) -> bytes:
        """Nothing until the end, and then the answer, or ``LaterBody`` when that takes longer."""
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            self._give_up(unreadable(f"has more than {MAX_ANSWER_BYTES} bytes", "response"))
        if self._later is not None and self._size - self._charged > CHARGED_BYTES:
            size, self._charged = self._size - self._charged, self._size
            if not self._later.charge(size):
                self._give_up(FULL)
        if not end:
            return b""
        body = b"".join(self._pieces)
        self._pieces.clear()
        if not body:
            return body
        later = self._later
        if later is not None and self._is_long(body):
            raise LaterBody(
                lambda take: later.judge(
                    partial(self._check, body), partial(self._go_on, take), FAILED, len(body)
                )
            )
        return self._asked(self._check(body))

    def _asked(self, outcome: Outcome) -> bytes:
        """Those of an answer about which nobody is asked; ``LaterBody`` of others."""
        if self._ask is None or outcome.action == "block":
            return self._settled(outcome)
        raise LaterBody(lambda take: self._go_on(take, outcome))

    def _go_on(self, take: Callable[[bytes], None], outcome: Outcome) -> None:
        if self._ask is None or outcome.action == "block":
            take(self._settled(outcome))
        else:
            self._ask(outcome, lambda settled: take(self._settled(settled)))

    def _settled(self, outcome: Outcome) -> bytes:
        self._release()
        if self._told is not None and outcome.verdicts:
            self._told(outcome.verdicts)
        return outcome.body

    def _give_up(self, refusal: Refusal) -> NoReturn:
        self._pieces.clear()
        self._release()
        raise EndBody(refusal.body())

    def _release(self) -> None:
        if self._charged and self._later is not None:
            self._later.charge(-self._charged)
            self._charged = 0
