"""Chat requests of an exact size, the same ones for the same seed.

Half of them share one of a few system prompts, as an application's requests do; the others are unique from
the first word. A picker with a prefix index therefore sees both hits and misses while it is measured.
"""

import json
import random

SYSTEM_PROMPTS = 8
"""Different system prompts among the requests that share one."""

SHARED_PART = 0.6
"""Share of a sharing request's size that its system prompt takes."""

VOCABULARY = (
    "able about above across after again against along among another answer around because before began "
    "behind below between both bring built carry change city close cloud common could course cover cross "
    "dark deep differ direct door draw during earth east enough every example family feet field figure "
    "final find first follow force form found friend front full gave general gold good govern great green "
    "ground group grow half hand happen heard heat heavy help high hold horse hour house hundred idea "
    "inch interest island just keep kind knew land language large last late laugh learn leave letter life"
)
WORDS = VOCABULARY.split()


def prose(random_source: random.Random, length: int) -> str:
    """Exactly `length` characters of words."""
    words: list[str] = []
    size = -1
    while size < length:
        words.append(random_source.choice(WORDS))
        size += len(words[-1]) + 1
    return " ".join(words)[:length]


def chat_body(model: str, system: str, question: str, *, stream: bool) -> bytes:
    """One chat completion request; a streaming one asks for usage, as metered applications do."""
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        "max_tokens": 16,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body, separators=(",", ":")).encode()


def chat_bodies(*, count: int, size_bytes: int, seed: int, stream: bool, model: str = "bench") -> list[bytes]:
    """`count` distinct bodies of exactly `size_bytes` each.

    Raises `ValueError` when that is too small for a chat request with a few distinct words in it.
    """
    overhead = len(chat_body(model, "", "", stream=stream))
    text_bytes = size_bytes - overhead
    if text_bytes < 64:
        raise ValueError(f"a body needs at least {overhead + 64} bytes, got {size_bytes}")
    random_source = random.Random(seed)  # noqa: S311 - reproducible filler, not a secret
    shared_length = int(text_bytes * SHARED_PART)
    systems = [prose(random_source, shared_length) for _ in range(SYSTEM_PROMPTS)]
    bodies = []
    for number in range(count):
        system = (
            systems[number // 2 % SYSTEM_PROMPTS] if number % 2 == 0 else prose(random_source, shared_length)
        )
        label = f"{number} "
        question = label + prose(random_source, text_bytes - shared_length - len(label))
        bodies.append(chat_body(model, system, question, stream=stream))
    return bodies
