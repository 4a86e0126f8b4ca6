"""What is answered when no view does: data for programs, a page for people, each with the request's id.

Pages are made without the request, so that they need neither database nor session: those may be what fails.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

from controlplane.core import requests
from controlplane.database import is_away

log = logging.getLogger(__name__)

API: Final = "/api/"
RETRY_S: Final = "5"
AWAY: Final = "The database does not answer. Try again in a moment: loading this page again asks anew."


class WithoutDatabase(MiddlewareMixin):
    """Answers for views that cannot ask the database, whichever view it is."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """503 while it is away; None for a defect."""
        return away(request, exception) if is_away(exception) else None


def away(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Later."""
    log.warning("the database cannot be asked: %s", error)
    answer = _answer(request, 503, "unavailable", AWAY)
    answer["Retry-After"] = RETRY_S
    return answer


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Nothing that Django takes for a request."""
    return _answer(request, 400, "bad_request", "this is no request that can be answered")


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """A page that is not for everybody."""
    return _answer(request, 403, "forbidden", str(exception) or "this page is not for you")


def not_a_form_of_ours(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A post without the token that our forms have."""
    message = "this did not come from a form of the console, or from one that is too old; load its page again"
    return _answer(request, 403, "forbidden", message)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Nothing is at this address."""
    return _answer(request, 404, "not_found", "there is nothing here; the API is at /api/v1/schema")


def failed(request: HttpRequest) -> HttpResponse:
    """A defect, of which the log has what happened; or the database went away beside the view."""
    error = sys.exc_info()[1]
    if error is not None and is_away(error):
        return away(request, error)
    return _answer(request, 500, "internal", "the control plane failed; its log says why")


def _answer(request: HttpRequest, status: int, code: str, message: str) -> HttpResponse:
    if request.path.startswith(API):
        return JsonResponse({"code": code, "message": message, "details": []}, status=status)
    page = {"status": status, "message": message, "request_id": requests.current()}
    return HttpResponse(render_to_string("error.html", page), status=status)
