"""What an answer costs by the prices of the list of models."""

from __future__ import annotations

from typing import Final

from dataplane.payload.token_usage import Usage
from ipp.interfaces.models import ModelList, ServedModel

PER: Final = 1_000_000
"""Tokens that prices are for."""


class Prices:
    """Looks prices up; made anew when the list has changed."""

    def __init__(self, listed: ModelList) -> None:
        self._listed = listed
        self._models: tuple[ServedModel, ...] = ()
        self._by_name: dict[str, ServedModel] = {}

    def cost(self, model: str, usage: Usage) -> float | None:
        """US dollars; None for a model that is not listed, and for usage without any count.

        A model that is listed without prices is free. A count that is not reported counts as none.
        """
        if self._models is not self._listed.models:
            self._models = self._listed.models
            self._by_name = {each.name: each for each in self._models}
        found = self._by_name.get(model)
        if found is None or (usage.prompt_tokens is None and usage.completion_tokens is None):
            return None
        prompt, answer = usage.prompt_tokens or 0, usage.completion_tokens or 0
        return (prompt * found.input_price + answer * found.output_price) / PER
