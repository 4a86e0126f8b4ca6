"""Counting a prompt's tokens with the model's own tokenizer, for those who need to know and can wait."""

from __future__ import annotations

from typing import Protocol

from ipp.interfaces.message import RequestMessage


class TokenCounter(Protocol):
    """Counts when it is asked. One is in a request's state under ``TokensOf``, where one is configured."""

    async def count_tokens(self, request: RequestMessage) -> int | None:
        """Tokens of the prompt as it is now; None when nobody can say."""


class TokensOf:
    """Key of a request's state."""
