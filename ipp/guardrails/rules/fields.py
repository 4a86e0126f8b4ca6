"""Fields of request bodies by the names that the APIs have for them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote

ABSENT: Final = object()

Keys = tuple[str, ...]

_GENERATION: Final = ("generationConfig", "generation_config")
_MODEL_SECTIONS: Final = ("models", "model", "deployments", "engines")
"""Of paths: the segment behind it is a model, or what it is deployed as."""
_INFERENCE: Final = ("inferenceConfig", "options", "parameters")


def _everywhere(name: str, camel: str) -> tuple[Keys, ...]:
    return (
        (name,),
        *((section, camel) for section in _GENERATION),
        *((section, name) for section in _GENERATION if camel != name),
        *((section, camel) for section in _INFERENCE[:1]),
        *((section, name) for section in _INFERENCE[1:]),
    )


ALIASES: Final[dict[str, tuple[Keys, ...]]] = {
    "temperature": _everywhere("temperature", "temperature"),
    "top_p": _everywhere("top_p", "topP"),
    "top_k": _everywhere("top_k", "topK"),
    "presence_penalty": _everywhere("presence_penalty", "presencePenalty"),
    "frequency_penalty": _everywhere("frequency_penalty", "frequencyPenalty"),
    "seed": _everywhere("seed", "seed"),
    "n": (("n",), *((section, "candidateCount") for section in _GENERATION)),
    "stop": (("stop",), ("stop_sequences",), *((section, "stopSequences") for section in _GENERATION)),
}
"""Field -> where APIs have it."""

OUTPUT_LIMITS: Final[tuple[Keys, ...]] = (
    ("max_tokens",),
    ("max_completion_tokens",),
    ("max_output_tokens",),
    ("max_tokens_to_sample",),
    ("max_new_tokens",),
    ("generationConfig", "maxOutputTokens"),
    ("generationConfig", "max_output_tokens"),
    ("generation_config", "max_output_tokens"),
    ("generation_config", "maxOutputTokens"),
    ("inferenceConfig", "maxTokens"),
    ("parameters", "max_new_tokens"),
    ("options", "num_predict"),
)
"""Where APIs have the most tokens that an answer may have."""


def places(field: str) -> tuple[Keys, ...]:
    """Where a policy's field may be; a dot goes into an object."""
    return ALIASES.get(field, (tuple(field.split(".")),))


def model_in_path(path: str) -> str:
    """The model that a request's path names, where some APIs have it; empty when it names none."""
    for section, name in pairwise(path.partition("?")[0].split("/")):
        if section in _MODEL_SECTIONS:
            head, colon, verb = name.rpartition(":")
            return unquote(head if colon and section == "models" and verb.isalpha() else name)
    return ""


def usual_place(field: str, body: Mapping[str, Any]) -> Keys:
    """Where a request of its shape has the field."""
    if field not in ALIASES:
        return tuple(field.split("."))
    if "contents" in body:
        section = "generation_config" if "generation_config" in body else "generationConfig"
        return next((keys for keys in ALIASES[field] if keys[0] == section), (field,))
    return next((keys for keys in ALIASES[field] if look(body, keys) is not ABSENT), (field,))


def look(body: Mapping[str, Any], keys: Keys) -> Any:
    """What is there, or ``ABSENT``."""
    value: Any = body
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    return value


def is_number(value: Any) -> bool:
    """A number of JSON; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
