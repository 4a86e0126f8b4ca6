"""The shared-prefix workload: many questions under few long system prompts, at random moments.

Applications with a long system prompt, documents or a conversation send it with every request. A replica
that still holds its KV blocks computes the question alone; any other computes all of it. So what a request
costs depends on where it goes, as long as one replica cannot hold all prompts and the fleet can.

Everything follows from the seed: the same arrivals, groups and texts for every policy that is compared.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from benchmarks.bodies import prose
from simulator.profile import Profile
from simulator.tokenizer import TOKEN_BYTES


class Workload(msgspec.Struct, frozen=True):
    """Shape of the requests and of their arrival."""

    groups: int = 48
    """System prompts; each request uses one of them, all equally often."""
    system_tokens: int = 6000
    question_tokens: int = 1200
    """Every question is new."""
    output_tokens: int = 64
    rate: float = 30.0
    """Arrivals per second on average, in a Poisson process."""
    seconds: float = 30.0
    """Arrivals in this time after the warm-up count."""
    warmup_s: float = 10.0
    """Arrivals before that fill the caches and do not count."""
    seed: int = 1


class Arrival(NamedTuple):
    """One request to be sent."""

    at_s: float
    """Seconds since the start of the load."""
    group: int
    question: int
    """Number of the request; its question is text that no other request has."""


def arrivals(workload: Workload) -> Iterator[Arrival]:
    """The requests in order of time."""
    source = random.Random(f"{workload.seed}/arrivals")  # noqa: S311 - reproducible, not a secret
    at_s, number = 0.0, 0
    while (at_s := at_s + source.expovariate(workload.rate)) < workload.warmup_s + workload.seconds:
        yield Arrival(at_s, source.randrange(workload.groups), number)
        number += 1


def system_prompt(workload: Workload, group: int) -> str:
    """The system prompt of a group."""
    source = random.Random(f"{workload.seed}/system/{group}")  # noqa: S311 - as above
    return prose(source, workload.system_tokens * TOKEN_BYTES)


def question(workload: Workload, arrival: Arrival) -> str:
    """The question of one request; its number comes first, so that nothing of it is in any cache."""
    source = random.Random(f"{workload.seed}/question/{arrival.question}")  # noqa: S311 - as above
    label = f"{arrival.question} "
    return label + prose(source, workload.question_tokens * TOKEN_BYTES - len(label))


def cold_service_s(workload: Workload, profile: Profile) -> float:
    """Seconds of a replica's time that a request takes when nothing of its prompt is in the cache.

    That is its prefill, the step it takes and its share of decode steps; what decode steps cost whether or
    not anybody shares them is left out, so the true figure is a little higher.
    """
    step = profile.step
    tokens = workload.system_tokens + workload.question_tokens
    prefill_s = step.base.seconds + step.prefill_token.seconds * tokens
    decode_s = (step.decode_sequence.seconds + step.context_token.seconds * tokens) * workload.output_tokens
    return prefill_s + decode_s
