"""Failures that a client of a model server sees, in the JSON shape of vLLM."""

from collections.abc import Mapping

import msgspec

_KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    409: "ConflictError",
    413: "RequestEntityTooLargeError",
    429: "TooManyRequestsError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class ApiError(Exception):
    """A request that is answered with `status` and a JSON body naming the reason."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """Return `{"error": {"message", "type", "param", "code"}}`."""
        generic = "InternalServerError" if self.status >= 500 else "BadRequestError"
        kind = _KINDS.get(self.status, generic)
        return msgspec.json.encode(
            {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}
        )
