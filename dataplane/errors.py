"""The errors a request can end with, and how a client sees them.

    RequestError                    code, HTTP status, OpenAI error type, dropped reason
    ├── BadRequestError             400  the body or a header cannot be understood
    ├── NotFoundError               404  no such model or route
    ├── PreconditionFailedError     412  what the caller made a condition does not hold
    ├── PayloadTooLargeError        413  the body exceeds the configured cap
    ├── ResourceExhaustedError      429  admitted by nobody right now: saturated, filtered out, timed out
    ├── InternalError               500  a defect of ours; the detail goes to the log, not to the client
    ├── ServiceUnavailableError     503  no endpoint to serve it
    └── DeadlineExceededError       504  our own deadline for the request phase passed
    ConfigError                     a document or a flag is wrong: path, message, suggestion

``code`` names are the ones llm-d counts in ``request_error_total``, so that dashboards keep working.
The body is the error object of the OpenAI API; 429 and 503 carry ``Retry-After``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec


class RequestError(Exception):
    """Ends one request; subclasses fix how."""

    code: ClassVar[str] = "Unknown"
    status: ClassVar[int] = 500
    error_type: ClassVar[str] = "server_error"
    error_code: ClassVar[str | None] = None
    retry_after_s: int | None = None
    dropped_reason: str = ""

    def __init__(
        self,
        message: str,
        *,
        dropped_reason: str = "",
        param: str | None = None,
        error_code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.client_code = error_code if error_code is not None else self.error_code
        if dropped_reason:
            self.dropped_reason = dropped_reason
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """JSON error object in the OpenAI shape."""
        return openai_error(self.message, self.error_type, self.client_code, self.param)


class BadRequestError(RequestError):
    """The body or a header cannot be understood."""

    code = "BadRequest"
    status = 400
    error_type = "invalid_request_error"


class NotFoundError(RequestError):
    """No such model or route."""

    code = "NotFound"
    status = 404
    error_type = "invalid_request_error"
    error_code = "model_not_found"


class PreconditionFailedError(RequestError):
    """What the caller made a condition does not hold."""

    code = "PreconditionFailed"
    status = 412
    error_type = "invalid_request_error"
    error_code = "precondition_failed"


class PayloadTooLargeError(RequestError):
    """The body exceeds the configured cap."""

    code = "PayloadTooLarge"
    status = 413
    error_type = "invalid_request_error"
    error_code = "request_too_large"


class ResourceExhaustedError(RequestError):
    """Nobody admits the request right now; trying again later may work."""

    code = "ResourceExhausted"
    status = 429
    error_type = "rate_limit_error"
    retry_after_s = 1
    dropped_reason = "rejected-saturated"


class InternalError(RequestError):
    """A defect of ours."""

    code = "Internal"
    status = 500


class ServiceUnavailableError(RequestError):
    """No endpoint to serve the request."""

    code = "ServiceUnavailable"
    status = 503
    retry_after_s = 1
    dropped_reason = "rejected-no-endpoints"


class DeadlineExceededError(RequestError):
    """Our own deadline for the request phase passed."""

    code = "DeadlineExceeded"
    status = 504
    error_type = "timeout_error"


def openai_error(message: str, error_type: str, code: str | None = None, param: str | None = None) -> bytes:
    """``{"error": {"message", "type", "param", "code"}}`` as JSON bytes.

    Messages may quote what a client sent, undecodable bytes included: those become question marks.
    """
    fields = {"message": message, "type": error_type, "param": param, "code": code}
    return msgspec.json.encode({"error": {name: _unicode(value) for name, value in fields.items()}})


def _unicode(text: str | None) -> str | None:
    return text and text.encode("utf-8", "replace").decode()


class ConfigError(ValueError):
    """A document or flag is wrong: ``path`` says where, ``message`` what, and what to do about it."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message

    def within(self, prefix: str) -> ConfigError:
        """The same error, its path placed below ``prefix``."""
        joined = (
            prefix + (self.path if self.path.startswith("[") else f".{self.path}") if self.path else prefix
        )
        return ConfigError(self.message, path=joined)


MAX_SUGGESTED_FOR: Final = 64
"""Longer words are no typing errors, and comparing them takes time."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean "x"?)`` when a known word is close, else ``""``."""
    if len(word) > MAX_SUGGESTED_FOR:
        return ""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""
