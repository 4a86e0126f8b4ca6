"""Every refusal of the API in one shape: ``{code, message, details: [{path, message}]}``."""

from __future__ import annotations

import logging
from typing import Any, Final

from django.core.exceptions import RequestDataTooBig
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from controlplane.core.errors import ServiceError
from controlplane.database import is_away

log = logging.getLogger(__name__)

RETRY_S: Final = "2"

_CODES: Final = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    415: "unsupported_media_type",
}


def answer(error: Exception, context: dict[str, Any]) -> Response | None:
    """The response to an exception; None for what is a defect."""
    if isinstance(error, ServiceError):
        return Response(error.body(), status=error.status)
    if is_away(error):
        log.warning("the database cannot be asked: %s", error)
        said = _body("unavailable", "the database does not answer; try again")
        return Response(said, status=503, headers={"Retry-After": RETRY_S})
    if isinstance(error, RequestDataTooBig):
        return Response(_body("too_large", "the body is too large"), status=413)
    if isinstance(error, Http404):
        return Response(_body("not_found", "there is nothing here"), status=404)
    if not isinstance(error, exceptions.APIException):
        return None
    status = error.status_code
    headers = {}
    if (asked := getattr(error, "auth_header", None)) is not None:
        headers["WWW-Authenticate"] = asked
    if (wait := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(int(wait) + 1)
    return Response(_body(_CODES.get(status, "error"), str(error.detail)), status=status, headers=headers)


def _body(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "message": message, "details": []}
