"""One request and its response as plugins see them: headers with pending changes, and the body's members.

Changes are collected and travel in one answer. A body nobody changes keeps its bytes; one of which single
members change keeps all others as the client wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dataplane.errors import BadRequestError, RequestError
from dataplane.extproc.events import Metadata
from dataplane.extproc.exchange import HttpRequest, HttpResponse
from dataplane.headers import CONTENT_ENCODING, FAIRNESS_ID, Headers
from dataplane.payload.json_member import set_member

NOT_JSON: Final = ("multipart/", "audio/", "image/", "video/", "application/octet-stream")
"""Content types of uploads. Anything else has to be JSON; an upload is read as JSON when it is an object,
since gateways and model servers that look for one do not mind its type."""

_OBJECT: Final = re.compile(rb"[ \t\r\n]*+\{")
_FORM_MODEL: Final = re.compile(
    rb'\r\ncontent-disposition:[ \t]*+form-data;[ \t]*+name="?model"?[ \t]*+\r\n(?:[^\r\n]++\r\n){0,8}+\r\n'
    rb"([^\r\n]{1,256}+)\r\n--",
    re.IGNORECASE,
)
"""The field of a form that names the model, as clients of transcriptions send it."""
_MENTION: Final = re.compile(rb'name\*?="?model\b', re.IGNORECASE)

_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_JSON: Final = frozenset(
    {None, b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"}
)
"""What nearly all requests are sent as."""


class _Named(msgspec.Struct, gc=False):
    """The one member that nearly every processor looks at, as nearly every client writes it."""

    model: str = ""


_NAMED: Final = msgspec.json.Decoder(_Named)


class Message:
    """Headers of one direction, with what is to be changed in them."""

    __slots__ = ("headers", "removed_headers", "set_headers")

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.set_headers: dict[str, str] = {}
        self.removed_headers: set[str] = set()

    def header(self, name: str) -> str:
        """The value as it will be sent on; empty when there will be none. Names are lower case."""
        found = self.set_headers.get(name)
        if found is not None:
            return found
        return "" if name in self.removed_headers else self.headers.get(name)

    def set_header(self, name: str, value: str) -> None:
        """Have the header sent on with this value, in the place of all it has."""
        self.removed_headers.discard(name)
        self.set_headers[name] = value

    def remove_header(self, name: str) -> None:
        """Have the header not sent on."""
        self.set_headers.pop(name, None)
        if name in self.headers:
            self.removed_headers.add(name)

    def encoded(self) -> list[tuple[str, bytes]]:
        """The headers to set, as bytes."""
        return [(name, value.encode("utf-8", "surrogateescape")) for name, value in self.set_headers.items()]


class RequestMessage(Message):
    """A request. ``state`` is shared by its plugins, under keys of their own."""

    __slots__ = (
        "_members",
        "_model",
        "base_model",
        "body",
        "is_body_changed",
        "metadata",
        "profile",
        "state",
    )

    def __init__(self, request: HttpRequest) -> None:
        # Written out: this runs for every request.
        self.headers = request.headers
        self.set_headers = {}
        self.removed_headers = set()
        self.body = request.body or b""
        """The body as it will be sent on."""
        self.is_body_changed = False
        self.metadata: Metadata | None = request.metadata
        self.base_model = ""
        """The model that the body's one is served by, as a plugin before has found; empty when none has."""
        self.profile = ""
        """Name of the profile that was picked."""
        self.state: dict[Any, Any] = {}
        self._members: Mapping[str, msgspec.Raw] | None = None
        self._model: str | None = None

    @property
    def is_json(self) -> bool:
        """Whether the body is read as JSON: it is an object, or its type is none that uploads have."""
        return not self._is_upload or bool(self.members)

    @property
    def _is_upload(self) -> bool:
        if self.headers.raw("content-type") in _JSON:
            return False
        return self.headers.get("content-type").lower().lstrip().startswith(NOT_JSON)

    @property
    def members(self) -> Mapping[str, msgspec.Raw]:
        """The members of the body's object, undecoded; of repeated ones the last. None of other uploads.

        ``BadRequestError`` when the body is no JSON object.
        """
        if self._members is None:
            self._members = _members_of_upload(self.body) if self._is_upload else _members(self)
        return self._members

    def member(self, name: str) -> Any:
        """A member's value; None when it is absent or null."""
        raw = self.members.get(name)
        return None if raw is None else msgspec.json.decode(raw)

    @property
    def model(self) -> str:
        """The body's ``model``; empty when there is none. A number is its digits; a form has a field."""
        if self._model is None:
            self._model = self._read_model()
        return self._model

    def _read_model(self) -> str:
        headers = self.headers
        is_plain = headers.raw("content-type") in _JSON and CONTENT_ENCODING not in headers
        if is_plain and self._members is None:
            try:
                return _NAMED.decode(self.body).model
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass  # it is no string, or what is wrong with the body is said below
        raw = self.members.get("model")
        if raw is not None:
            return text_of(raw)
        return _model_of_form(self.body) if self._is_upload else ""

    @property
    def tenant(self) -> str:
        """Who asks, as the edge before us has authenticated; empty when nobody says."""
        return self.headers.control(FAIRNESS_ID)

    def set_member(self, name: str, value: str) -> None:
        """Set a member of the body to a string and leave every other byte as it is."""
        raw = self.members.get(name)
        is_string = raw is not None and bytes(raw).startswith(b'"')
        try:
            self.replace_body(set_member(self.body, name, value, is_string=is_string))
        except ValueError as error:
            raise unreadable(str(error)) from None

    def replace_body(self, body: bytes) -> None:
        """Send another body on."""
        if body is not self.body:
            self.body, self.is_body_changed = body, True
            self._members = self._model = None


class ResponseMessage(Message):
    """The head of a response; its body passes through transforms."""

    __slots__ = ("end_of_stream", "is_shown", "status")

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.headers)
        self.status = response.status
        self.end_of_stream = response.end_of_stream
        self.is_shown = response.is_shown

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is server-sent events."""
        return b"text/event-stream" in (self.headers.raw("content-type") or b"").lower()


def text_of(raw: msgspec.Raw) -> str:
    """A JSON value of any type as header text: strings without quotes, the rest as it was written."""
    value = bytes(raw).strip()
    if value == b"null":
        return ""
    if not value.startswith(b'"'):
        return value.decode("utf-8", "surrogateescape")
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.DecodeError as error:
        raise unreadable(str(error)) from None


def unreadable(why: str) -> RequestError:
    """400 in the words of the field."""
    return BadRequestError(f"inference error: BadRequest - failed to parse request body: {why}")


def _members_of_upload(body: bytes) -> Mapping[str, msgspec.Raw]:
    if _OBJECT.match(body) is None:
        return {}
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _model_of_form(body: bytes) -> str:
    """The model that a form names; empty when it names none, or may be read as naming another."""
    found = _FORM_MODEL.search(body)
    if found is None or len(_MENTION.findall(body)) > 1:
        return ""
    return found[1].decode("utf-8", "replace")


def _members(request: RequestMessage) -> Mapping[str, msgspec.Raw]:
    encoding = request.headers.get(CONTENT_ENCODING).lower()
    if encoding not in {"", "identity"}:
        raise unreadable(f"it is encoded as {encoding[:40]}; send it plain")
    try:
        return _DECODER.decode(request.body)
    except RecursionError:
        raise unreadable("it is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(str(error)) from None
