"""Every request has an id: on its answer, on the page that says what went wrong, in the log and the audit.

So whoever was refused can say which request it was. A proxy that is trusted names requests itself, so that
its log and this one have the same names; otherwise they are drawn here.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from dataplane.headers import REQUEST_ID
from dataplane.observability.logs import TextFormatter

MAX_CHARACTERS: Final = 64
_ID: Final = re.compile(rf"[A-Za-z0-9._:/+=-]{{1,{MAX_CHARACTERS}}}", re.ASCII)
_current: ContextVar[str] = ContextVar("request_id", default="")

Answer = Callable[[HttpRequest], HttpResponseBase]
AsyncAnswer = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


def current() -> str:
    """The id of the request that is being answered; empty when there is none, as in commands."""
    return _current.get()


@sync_and_async_middleware
def name_requests(get_response: Any) -> Answer | AsyncAnswer:
    """The outermost middleware."""
    if iscoroutinefunction(get_response):

        async def answer_later(request: HttpRequest) -> HttpResponseBase:
            token = _current.set(_id_of(request))
            try:
                return _named(await cast("AsyncAnswer", get_response)(request))
            finally:
                _current.reset(token)

        return answer_later

    def answer(request: HttpRequest) -> HttpResponseBase:
        token = _current.set(_id_of(request))
        try:
            return _named(cast("Answer", get_response)(request))
        finally:
            _current.reset(token)

    return answer


def _id_of(request: HttpRequest) -> str:
    given = request.headers.get(REQUEST_ID, "") if settings.TRUSTED_PROXIES else ""
    return given if _ID.fullmatch(given) else secrets.token_hex(16)


def _named(response: HttpResponseBase) -> HttpResponseBase:
    response.headers[REQUEST_ID] = current()
    return response


class LineFormatter(logging.Formatter):
    """A line of text that ends with the request it belongs to, and tracebacks below."""

    def __init__(self) -> None:
        super().__init__()
        self._text = TextFormatter()

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines."""
        line, newline, rest = self._text.format(record).partition("\n")
        request = current()
        return f"{line} (request {request}){newline}{rest}" if request else f"{line}{newline}{rest}"
