"""How many tokens an answer took, as its model server reports it."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct):
    """Token counts of a finished response as the model server reports them; None = not reported."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
