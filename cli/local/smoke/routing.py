"""Where requests go: a repeated prompt to the server that has it cached, distinct prompts to everyone."""

import asyncio
import time
from collections import Counter

from cli.local.smoke.context import Context, chat, distinct_text, expect, same
from cli.local.smoke.requests import CHAT
from simulator.headers import POD

PROMPT_WORDS = 1500
BURST_PER_ENDPOINT = 10
MOST_OVER_MEAN = 1.15


async def repeat_hits_cache(context: Context) -> str:
    """The second time a long prompt lands on the same endpoint, finds its blocks and starts sooner."""
    details = []
    for pool in context.pools:
        body = chat(pool.models[0], distinct_text(PROMPT_WORDS), max_tokens=1)
        first, second = await timed(context, body), await timed(context, body)
        same(f"{pool.name}: endpoint of the second request", second[0], first[0])
        same(f"{pool.name}: cached_tokens of the first request", first[1], 0)
        expect(second[1] > 0, f"{pool.name}: no cached_tokens in the second answer")
        expect(second[2] < first[2], f"{pool.name}: {second[2]:.3f} s is not sooner than {first[2]:.3f} s")
        details.append(
            f"{second[0]}: {second[1]} tokens cached, {first[2] * 1e3:.0f} -> {second[2] * 1e3:.0f} ms"
        )
    return "; ".join(details)


async def timed(context: Context, body: dict[str, object]) -> tuple[str, int, float]:
    """Return the endpoint, the cached tokens and the seconds of one request."""
    started = time.monotonic()
    answer = await context.post(CHAT, body)
    duration = time.monotonic() - started
    same("status", answer.status, 200)
    usage = answer.json()["usage"]
    return answer.headers[POD], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0, duration


async def burst_spreads(context: Context) -> str:
    """Distinct prompts that arrive together are spread evenly."""
    pool = context.pools[0]
    total = BURST_PER_ENDPOINT * pool.replicas
    bodies = [chat(pool.models[0], distinct_text(40), max_tokens=8) for _ in range(total)]
    answers = await asyncio.gather(*(context.post(CHAT, body) for body in bodies))
    same("statuses", {answer.status for answer in answers}, {200})
    counts = Counter(answer.headers[POD] for answer in answers)
    ratio = max(counts.values()) / BURST_PER_ENDPOINT
    expect(ratio <= MOST_OVER_MEAN, f"the busiest endpoint got {ratio:.2f} times the mean: {dict(counts)}")
    return f"{total} requests over {len(counts)} endpoints, at most {ratio:.2f} times the mean"
