"""Answers as JSON, whatever a caller has sent: a refusal repeats words of his, and these need not be text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import JSONRenderer


class _Escaped(JSONRenderer):
    ensure_ascii = True


class AnyTextRenderer(JSONRenderer):
    """UTF-8; an answer with half a character, which UTF-8 does not have, is written in escapes."""

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The answer's bytes."""
        try:
            return super().render(data, accepted_media_type, renderer_context)
        except UnicodeEncodeError:
            return _Escaped().render(data, accepted_media_type, renderer_context)
