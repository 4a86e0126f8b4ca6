"""What a service refuses, and how each door shows it.

ServiceError          code, HTTP status
├── InvalidError      422  a document is wrong; every problem has its path
├── ForbiddenError    403  the actor's role does not allow it
├── MissingError      404  there is no such object
├── ConflictError     409  it exists already, or others depend on it
├── StaleError        412  somebody else has changed it since; both versions are told
└── UnversionedError  428  a change must say which version it changes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from dataplane.errors import ConfigError


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of what is wrong."""

    path: str
    message: str


class ServiceError(Exception):
    """Refuses what was asked for; nothing has changed."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, details: Sequence[Detail] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = list(details)

    def body(self) -> dict[str, Any]:
        """The error as JSON-able data."""
        return {"code": self.code, "message": self.message, "details": msgspec.to_builtins(self.details)}


class InvalidError(ServiceError):
    """A document is wrong."""

    code = "invalid"
    status = 422

    @classmethod
    def of(cls, problems: Sequence[ConfigError]) -> InvalidError:
        """The refusal for everything that is wrong with a document."""
        details = [Detail(problem.path, problem.message) for problem in problems]
        count = len(details)
        message = str(problems[0]) if count == 1 else f"{count} mistakes; each is in details"
        return cls(message, details)


class ForbiddenError(ServiceError):
    """The actor's role does not allow it."""

    code = "forbidden"
    status = 403


class MissingError(ServiceError):
    """There is no such object."""

    code = "not_found"
    status = 404


class ConflictError(ServiceError):
    """It exists already, or others depend on it."""

    code = "conflict"
    status = 409


class StaleError(ServiceError):
    """Somebody else has changed it since."""

    code = "stale"
    status = 412

    def __init__(self, kind: str, name: str, expected: int, found: int, current: dict[str, Any]) -> None:
        super().__init__(
            f"{kind} {name} is at version {found}, and the change is meant for version {expected}; "
            "read it again and repeat the change"
        )
        self.expected = expected
        self.found = found
        self.current = current
        """The object as it is now, as a document."""

    def body(self) -> dict[str, Any]:
        """The error with both versions."""
        return {**super().body(), "expected": self.expected, "found": self.found, "current": self.current}


class UnversionedError(ServiceError):
    """A change must say which version it changes."""

    code = "version_required"
    status = 428
