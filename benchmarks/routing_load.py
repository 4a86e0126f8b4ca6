"""The clients of the routing benchmark: every request is sent when it is due, whatever became of the others.

So a slow policy meets the same arrivals as a fast one and its queues grow, as real users' requests would make
them. Time to first token counts from the moment a request was due.

Run as `python -m benchmarks.routing_load`; prints one line of JSON, the `Outcome` of every request, and ends.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence

import aiohttp
import msgspec

from benchmarks.routing_workload import Arrival, Workload, arrivals, question, system_prompt
from benchmarks.worker import run_on_uvloop

TAIL_BYTES = 4096
"""How much of a stream's end is kept: the last events carry the usage."""

EVENT_PREFIX = b"data: {"


class Outcome(msgspec.Struct, frozen=True):
    """What became of one request; times in seconds, since the start of the load where not said otherwise."""

    at_s: float
    late_s: float = 0.0
    """From due to sent: time the clients lost, which should be next to nothing."""
    ttft_s: float = 0.0
    """From due to the first token."""
    ended_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""
    """Empty for a complete answer."""


class PromptDetails(msgspec.Struct):
    """Part of `Usage`."""

    cached_tokens: int = 0


class Usage(msgspec.Struct):
    """Token counts in the last event of a stream."""

    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class Event(msgspec.Struct):
    """The part of a stream's event that is read."""

    usage: Usage | None = None


class Clients:
    """Sends the requests of one run and collects their outcomes."""

    def __init__(self, workload: Workload, url: str, model: str, session: aiohttp.ClientSession) -> None:
        self.workload = workload
        self.url = url
        self.model = model
        self.session = session
        self.systems = [system_prompt(workload, group) for group in range(workload.groups)]
        self.outcomes: list[Outcome] = []
        self.started = time.perf_counter()

    def now(self) -> float:
        """Seconds since the start of the load."""
        return time.perf_counter() - self.started

    async def run(self, drain_s: float) -> list[Outcome]:
        """Send everything; requests unfinished `drain_s` after the last arrival count as errors."""
        tasks: dict[asyncio.Task[None], Arrival] = {}
        self.started = time.perf_counter()
        for arrival in arrivals(self.workload):
            body = self.body(arrival)
            await asyncio.sleep(max(0.0, arrival.at_s - self.now()))
            tasks[asyncio.create_task(self.send(arrival, body))] = arrival
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=drain_s)
            for task in unfinished:
                task.cancel()
                self.outcomes.append(Outcome(tasks[task].at_s, error=f"unfinished after {drain_s:g} s"))
            await asyncio.gather(*unfinished, return_exceptions=True)
        return self.outcomes

    def body(self, arrival: Arrival) -> bytes:
        """The request as JSON."""
        content = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": self.systems[arrival.group]},
                {"role": "user", "content": question(self.workload, arrival)},
            ],
            "max_tokens": self.workload.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(content).encode()

    async def send(self, arrival: Arrival, body: bytes) -> None:
        """Send one request and note what becomes of it."""
        late_s = self.now() - arrival.at_s
        try:
            outcome = await self.exchange(arrival, body)
        except (aiohttp.ClientError, OSError) as error:
            outcome = Outcome(arrival.at_s, error=type(error).__name__)
        self.outcomes.append(msgspec.structs.replace(outcome, late_s=late_s))

    async def exchange(self, arrival: Arrival, body: bytes) -> Outcome:
        """Send one request and read its stream to the end."""
        first_s = 0.0
        tail = b""
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        async with self.session.post(self.url, data=body, headers=headers) as response:
            if response.status != 200:
                return Outcome(arrival.at_s, error=f"status {response.status}")
            async for data in response.content.iter_any():
                if not first_s:
                    first_s = self.now()
                tail = (tail + data)[-TAIL_BYTES:]
        usage = read_usage(tail)
        if usage is None:
            return Outcome(arrival.at_s, error="a stream without usage")
        details = usage.prompt_tokens_details
        return Outcome(
            at_s=arrival.at_s,
            ttft_s=first_s - arrival.at_s,
            ended_s=self.now(),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=details.cached_tokens if details else 0,
            completion_tokens=usage.completion_tokens,
        )


def read_usage(tail: bytes) -> Usage | None:
    """The usage in the end of a stream; nothing when it has none or is cut off before `[DONE]`."""
    *events, last = tail.rstrip().split(b"\n\n")
    if last != b"data: [DONE]":
        return None
    final = next((event for event in reversed(events) if event.startswith(EVENT_PREFIX)), EVENT_PREFIX)
    try:
        return msgspec.json.decode(final.removeprefix(b"data: "), type=Event).usage
    except msgspec.MsgspecError:
        return None


async def generate(arguments: argparse.Namespace) -> None:
    """Run the load and print the outcomes."""
    workload = msgspec.json.decode(arguments.workload, type=Workload)
    url = f"http://{arguments.target}/v1/chat/completions"
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        outcomes = await Clients(workload, url, arguments.model, session).run(arguments.drain_s)
    print(msgspec.json.encode(outcomes).decode(), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and send the requests."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing_load", description=__doc__)
    parser.add_argument("--target", required=True, help="HOST:PORT")
    parser.add_argument("--model", required=True)
    parser.add_argument("--workload", required=True, help="a Workload as JSON")
    parser.add_argument("--drain-s", type=float, default=60.0)
    run_on_uvloop(generate(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
