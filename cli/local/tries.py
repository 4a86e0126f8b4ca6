"""What to try on a running gateway: commands to copy, with the addresses of this run."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.local.plan import Plan
from dataplane.processes.ports import LOOPBACK

JSON = "-H 'content-type: application/json'"


def tries(plan: Plan) -> Sequence[tuple[str, str]]:
    """Return (what it shows, command) in the order to try them."""
    program = shlex.quote(str(Path(sys.executable).parent / "pointsman"))
    first, last = plan.pools[0], plan.pools[-1]
    model = first.models[0]
    chat = f"{plan.url}/v1/chat/completions {JSON}"
    question = '"messages": [{"role": "user", "content": "Where does this train go?"}]'
    prompt = "$(seq -s ' ' 3000)"
    completion = f'{{\\"model\\": \\"{model}\\", \\"max_tokens\\": 1, \\"prompt\\": \\"{prompt}\\"}}'
    repeat = (
        f"curl -s -w '\\n%{{time_starttransfer}} s\\n' {plan.url}/v1/completions {JSON} -d \"{completion}\""
    )
    return [
        ("which models there are", f"curl -s {plan.url}/v1/models"),
        ("ask one", f'curl -s {chat} -d \'{{"model": "{model}", {question}}}\''),
        (
            "stream from another",
            f'curl -sN {chat} -d \'{{"model": "{last.models[0]}", "stream": true, {question}}}\'',
        ),
        *object_tries(plan, chat, question),
        (
            "a long prompt twice: the second time cached_tokens > 0 and an earlier first byte",
            f"for i in 1 2; do {repeat}; done",
        ),
        (
            f"why the last endpoint of {first.name} was picked",
            f"curl -s 'http://{LOOPBACK}:{first.metrics_port}/debug/decisions?limit=1'",
        ),
        (
            "what it costs (1 minute), and what routing by prefix gains (2 minutes); stop this gateway first",
            f"{program} bench extproc --seconds 5 --repeat 1 --servers envoy,epp; {program} bench routing",
        ),
    ]


def object_tries(plan: Plan, chat: str, question: str) -> Sequence[tuple[str, str]]:
    """What to try of objectives and rewrites, as far as the plan has any."""
    found = []
    aliased = next((pool for pool in plan.pools if len(pool.names) > len(pool.models)), None)
    if aliased is not None:
        alias = aliased.names[len(aliased.models)]
        found.append(
            (
                f"ask for {alias}, which another model answers: the name in the answer is the one asked for",
                f'curl -s {chat} -d \'{{"model": "{alias}", {question}}}\'',
            )
        )
    ranked = next((pool for pool in plan.pools if pool.objectives), None)
    if ranked is not None:
        url = f"http://{LOOPBACK}:{ranked.metrics_port}/debug/objects"
        body = f'{{"model": "{ranked.models[0]}", {question}}}'
        header = f"x-llm-d-inference-objective: {ranked.objectives[0]}"
        what = f"ask with a priority; all of them, and how to change them: {url}, {ranked.objects_file}"
        found.append((what, f"curl -s {chat} -H '{header}' -d '{body}'"))
    return found
