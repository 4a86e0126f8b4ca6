"""Prompts as vLLM renders them: token ids, and where in them media stand.

Where an image or another medium stands, all media have the same placeholder tokens. They are replaced, in
what the picker knows, by an id made of the medium's own hash, so that prompts with different images do not
look alike.
"""

from __future__ import annotations

from typing import Final

import msgspec
import xxhash

from dataplane.errors import BadRequestError
from epp.plugins.prompts import check_tokens


class Placeholder(msgspec.Struct, gc=False):
    """Where in the prompt a medium stands, in tokens."""

    offset: int = 0
    length: int = 0


class Features(msgspec.Struct, gc=False):
    """Media of the prompt by modality, hashes and places in the same order."""

    mm_hashes: dict[str, list[str]] | None = None
    mm_placeholders: dict[str, list[Placeholder]] | None = None


class Rendered(msgspec.Struct, gc=False):
    """One prompt as the render endpoints answer it, as far as it is read."""

    token_ids: list[int]
    features: Features | None = None


_rendered: Final = msgspec.json.Decoder(Rendered | list[Rendered])


def read_rendered(answer: bytes) -> list[list[int]]:
    """Token ids of each prompt in an answer. ``ValueError`` for what is no answer."""
    try:
        found = _rendered.decode(answer)
        prompts = found if isinstance(found, list) else [found]
        for prompt in prompts:
            check_tokens(prompt.token_ids, "token_ids")
    except (msgspec.DecodeError, BadRequestError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"it holds no prompt: {error}") from None
    if not prompts:
        raise ValueError("it holds no prompt")
    for prompt in prompts:
        if prompt.features is not None:
            mark_media(prompt.token_ids, prompt.features)
    return [prompt.token_ids for prompt in prompts]


def mark_media(tokens: list[int], features: Features) -> None:
    """Put each medium's own id in its place; impossible places are the model server's to judge.

    Places of more tokens than the prompt has must overlap: those beyond are left alone.
    """
    places = features.mm_placeholders or {}
    left = len(tokens)
    for modality, hashes in (features.mm_hashes or {}).items():
        for reference, place in zip(hashes, places.get(modality, ()), strict=False):
            end = place.offset + place.length
            if 0 <= place.offset < end <= len(tokens) and place.length <= left:
                left -= place.length
                mark = xxhash.xxh3_64_intdigest(reference.encode("utf-8", "surrogatepass")) & 0xFFFF_FFFF
                tokens[place.offset : end] = [mark] * place.length
