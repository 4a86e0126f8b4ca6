"""Failures on purpose: at a rate, drawn by seed, or exactly where a request's header asks for one."""

import random

from simulator.errors import ApiError
from simulator.headers import RETURN_ERROR
from simulator.options import Failure, RuntimeOptions

_FAILURES: dict[Failure, tuple[int, str, str | None]] = {
    "rate_limit": (429, "Rate limit reached (injected failure)", None),
    "invalid_api_key": (401, "Incorrect API key provided (injected failure)", None),
    "context_length": (400, "The prompt exceeds the maximum context length (injected failure)", "messages"),
    "server_error": (503, "The server is overloaded or not ready (injected failure)", None),
    "invalid_request": (400, "The request is invalid (injected failure)", None),
    "model_not_found": (404, "The model does not exist (injected failure)", "model"),
}

LOWEST_ERROR, HIGHEST_ERROR = 400, 599


class FaultInjector:
    """Decides which requests of one replica fail."""

    def __init__(self, seed: str) -> None:
        self._draw = random.Random(seed)  # noqa: S311

    def check(self, asked: str | None, runtime: RuntimeOptions) -> None:
        """Raise ApiError when the header value `asked` or the configured rate wants this request to fail."""
        if asked is not None:
            raise _asked_for(asked)
        rate = runtime.failure_injection_rate
        if rate and self._draw.random() * 100 < rate:
            names = runtime.failure_types or list(_FAILURES)
            status, message, param = _FAILURES[self._draw.choice(names)]
            raise ApiError(status, message, param=param)


def _asked_for(text: str) -> ApiError:
    digits = text.strip()
    status = int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 3 else 0
    if not LOWEST_ERROR <= status <= HIGHEST_ERROR:
        message = f"{RETURN_ERROR}: {text[:40]!r} is not a status code from {LOWEST_ERROR} to {HIGHEST_ERROR}"
        return ApiError(400, message)
    return ApiError(status, f"Failure {status} asked for by the header {RETURN_ERROR}")
