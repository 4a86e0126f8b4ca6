"""``body-field-to-header``: copies a member of the body into a header, so that routes can match on it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage, text_of
from ipp.plugins.header_names import HeaderName, check_header_name, header_value


class BodyFieldToHeaderParams(PluginParams, frozen=True, kw_only=True):
    """Both are required."""

    field_name: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    """Member of the body's object, of any type: 42 becomes ``42``, true ``true``."""
    header_name: HeaderName
    """The header it becomes. A client's own header of this name is taken away."""

    def __post_init__(self) -> None:
        check_header_name(self.header_name)


class BodyFieldToHeader:
    """An absent field, null and the empty text set no header and are counted."""

    info: ClassVar = PluginInfo("body-field-to-header", BodyFieldToHeaderParams, Stability.STABLE)
    needs_request_body: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: BodyFieldToHeaderParams, handle: Handle) -> None:
        self.name = name
        self._field = params.field_name
        self._header = params.header_name.lower()
        self._not_found = handle.metrics.field_not_found.child(params.field_name)
        self._empty = handle.metrics.field_empty.child(params.field_name)

    def owned_headers(self) -> Collection[str]:
        """Its header, which says where the request goes."""
        return (self._header,)

    def process_request(self, request: RequestMessage) -> None:
        """Set the header."""
        raw = request.members.get(self._field)
        if raw is None:
            self._not_found.inc()
            return
        text = header_value(text_of(raw))
        if text:
            request.set_header(self._header, text)
        else:
            self._empty.inc()
