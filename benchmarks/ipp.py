"""The ipp benchmark: what a payload processor and its guardrails cost.

Three things are judged. What a processor adds, when no policy holds, to a server on the same transport that
only passes on: real processes behind a real Envoy, under the same load, in turn, round after round, compared
within a round. What one policy with many keywords, patterns and personal data costs for one large prompt, in
one message or in many; and what it costs for one event of a stream. These run in this process, as do
exchanges without any network, encoded messages in and encoded answers out, whose figures say where the time
goes. Kinds take turns in random order, so that a busy neighbour slows all alike.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import mean
from time import thread_time_ns
from typing import Any

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from benchmarks import extproc, extproc_report
from benchmarks.baseline_passing import Passing
from benchmarks.envoy_config import Mode
from benchmarks.extproc_plan import ExtProcOptions, ExtProcResult, Server, Variant
from benchmarks.extproc_report import Ratio
from benchmarks.ipp_process import CONFIG
from benchmarks.machine import Machine, describe_machine
from benchmarks.tables import number, render_table
from dataplane.clock import SYSTEM_CLOCK
from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.extproc.exchange import Exchange
from dataplane.extproc.service import ExternalProcessor
from ipp.guardrails.engine import CompiledPolicy
from ipp.guardrails.matches import Facts
from ipp.guardrails.policies import Policies
from ipp.handler import ProcessorHandler
from ipp.interfaces.handle import Handle
from ipp.metrics import IppMetrics
from ipp.pipeline import load_pipeline
from ipp.policies import PolicyHolder
from ipp.registry import REGISTRY
from ipp.verdict_log import VerdictLog

LIMIT_RATIO = 1.1
"""Of a processor without policies to a server that only passes on."""
LIMIT_PROMPT_US = 3000.0
LIMIT_CHUNK_US = 100.0
SLOWEST_DROPPED = 0.25
BATCH = 50
"""Exchanges timed together."""

VOCABULARY = ("the", "of", "to", "and", "was", "for", "with", "they", "have", "this", "from", "what", "there")


class IppOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench ipp`."""

    body_bytes: int = 2048
    prompt_bytes: int = 40_000
    keywords: int = 2000
    patterns: int = 50
    messages: int = 40
    """Over which the prompt is spread where it is not one."""
    events: int = 200
    rounds: int = 60
    repeat: int = 9
    """Rounds through Envoy; 0 leaves them out."""
    seconds: float = 2.0
    warmup_s: float = 0.5
    connections: int = 16
    seed: int = 1


class IppResult(msgspec.Struct, frozen=True):
    """Everything a run found out; CPU microseconds."""

    machine: Machine
    options: IppOptions
    bare_us: float
    """An exchange that collects the request and passes everything on."""
    no_policy_us: float
    """One with guardrails, without policies."""
    others_policy_us: float
    """One with guardrails, of which no policy holds for its model."""
    prompt_us: float
    """The policy over one prompt."""
    spread_us: float
    """The policy over a prompt of many messages."""
    chunk_us: float
    """The policy over one event of a stream."""
    through_envoy: ExtProcResult | None
    """Servers that pass on, without policies, and with others' policies, behind Envoy; None = left out."""

    def against_passing(self, server: Server) -> float | None:
        """CPU of a processor per request, divided by that of a server that only passes on: the median."""
        found = self.through_envoy
        if found is None:
            return None
        (scenario,) = found.options.scenarios()
        figure = extproc_report.server_us
        part, whole = (Variant(each, Mode.FULL_DUPLEX) for each in (server, Server.PASSING))
        return extproc_report.paired(found, scenario, (part, figure), (whole, figure))


class NoWriter:
    """Takes answers and forgets them."""

    def send(self, *parts: bytes) -> None:
        """An answer."""

    def finish(self, status: int = 0, message: str = "") -> None:
        """The end."""


def policy(options: IppOptions) -> GuardrailPolicySpec:
    """Many words, many patterns, and personal data, on requests and streams."""
    draw = random.Random(options.seed)  # noqa: S311 - reproducible, not a secret
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choice(letters) for _ in range(9)) for _ in range(options.keywords)]
    heads = [draw.choice(VOCABULARY) for _ in range(options.patterns)]
    patterns = [f"\\b{head}{number}-[0-9]{{4,12}}\\b" for number, head in enumerate(heads)]
    stages = ["request", "stream"]
    entities = ["email", "phone", "iban", "card", "nationalId", "ip", "secret"]
    rules: list[dict[str, Any]] = [
        {"name": "words", "type": "keywords", "parameters": {"words": words}, "stages": stages},
        {"name": "patterns", "type": "patterns", "parameters": {"patterns": patterns}, "stages": stages},
        {
            "name": "people",
            "type": "pii",
            "mode": "mask",
            "parameters": {"entities": entities},
            "stages": stages,
        },
    ]
    return msgspec.convert({"models": ["guarded"], "rules": rules}, GuardrailPolicySpec)


def prose(size: int, seed: int) -> str:
    """Words of about so many characters."""
    draw = random.Random(seed)  # noqa: S311 - reproducible, not a secret
    words = []
    length = 0
    while length < size:
        words.append(draw.choice(VOCABULARY))
        length += len(words[-1]) + 1
    return " ".join(words)


def chat(model: str, text: str, spread: int = 1) -> bytes:
    """A request, its text spread over so many messages."""
    size = -(-len(text) // spread)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    turns = [{"role": "user", "content": part} for part in parts]
    return json.dumps({"model": model, "messages": turns}).encode()


def messages(body: bytes) -> list[bytes]:
    """What Envoy sends of one exchange, encoded: the request and a short answer, in full duplex."""
    sent = (
        pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=_headers(":method", "POST"))),
        pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=True)),
        pb.ProcessingRequest(response_headers=pb.HttpHeaders(headers=_headers(":status", "200"))),
        pb.ProcessingRequest(response_body=pb.HttpBody(body=b'{"choices": []}', end_of_stream=True)),
    )
    return [each.SerializeToString() for each in sent]


def _headers(name: str, value: str) -> base_pb2.HeaderMap:
    common = [("content-type", "application/json"), (":path", "/v1/chat/completions")]
    pairs = [(name, value), *common, *((f"x-header-{i}", "value") for i in range(10))]
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=key, raw_value=text.encode()) for key, text in pairs]
    )


def handler(documents: Sequence[tuple[str, GuardrailPolicySpec]]) -> ProcessorHandler:
    """A processor with these policies."""
    metrics, rng = IppMetrics(), random.Random(1)  # noqa: S311 - nothing is drawn
    holder = PolicyHolder(rng)
    holder.put(Policies(documents), [name for name, _ in documents], "1")
    handle = Handle(metrics, holder, VerdictLog(metrics, "bench", ""), SYSTEM_CLOCK, rng, has_policies=True)
    return ProcessorHandler(load_pipeline(json.dumps(CONFIG).encode(), handle, REGISTRY), metrics)


def timed(run: Callable[[], object], repeats: int) -> float:
    """CPU microseconds of one."""
    start = thread_time_ns()
    for _ in range(repeats):
        run()
    return (thread_time_ns() - start) / repeats / 1000


def trimmed(times: Sequence[float]) -> float:
    """The mean without the slowest."""
    return mean(sorted(times)[: max(1, round(len(times) * (1 - SLOWEST_DROPPED)))])


def run(options: IppOptions) -> IppResult:
    """Measure everything."""
    spec = policy(options)
    sent = messages(chat("free", prose(options.body_bytes - 80, options.seed)))
    kinds: dict[str, tuple[Callable[[], object], int]] = {
        "bare": (_exchange(Passing, sent), BATCH),
        "no policy": (_exchange(handler([]).open, sent), BATCH),
        "another's policy": (_exchange(handler([("bench", spec)]).open, sent), BATCH),
        "prompt": (_prompt(spec, options, 1), 1),
        "spread": (_prompt(spec, options, options.messages), 1),
        "stream": (_stream(spec, options), 1),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    order = random.Random(options.seed)  # noqa: S311 - reproducible, not a secret
    names = list(kinds)
    for round_ in range(options.rounds + 3):
        order.shuffle(names)
        for name in names:
            took = timed(*kinds[name])
            if round_ >= 3:
                times[name].append(took)
    found = {name: trimmed(each) for name, each in times.items()}
    return IppResult(
        describe_machine(),
        options,
        found["bare"],
        found["no policy"],
        found["another's policy"],
        found["prompt"],
        found["spread"],
        found["stream"] / options.events,
        _through_envoy(options) if options.repeat else None,
    )


def _through_envoy(options: IppOptions) -> ExtProcResult:
    """The servers in turn, under the same load."""
    return extproc.run(
        ExtProcOptions(
            connections=options.connections,
            body_bytes=max(options.body_bytes, 300),
            paced_rate=0.0,
            large_body_bytes=0,
            sse_chunks=0,
            seconds=options.seconds,
            warmup_s=options.warmup_s,
            repeat=options.repeat,
            servers=(Server.PASSING, Server.IPP, Server.IPP_OTHERS),
            modes=(Mode.FULL_DUPLEX,),
            seed=options.seed,
        )
    )


def compiled(spec: GuardrailPolicySpec) -> CompiledPolicy:
    """The policy for its model."""
    found = Policies([("bench", spec)]).select("", "guarded", "")
    if found is None:
        raise AssertionError("the policy holds for its model")
    return found


def _exchange(open_exchange: Callable[[], Exchange], sent: Sequence[bytes]) -> Callable[[], object]:
    processor = ExternalProcessor(open_exchange)
    # Nothing here waits, so there is no deadline to keep and no loop to keep it.
    for name in ("await_answer", "answered"):
        setattr(processor, name, lambda _: None)

    def exchange() -> None:
        stream = processor(NoWriter(), ())  # type: ignore[arg-type]  # only what an exchange uses
        for message in sent:
            stream.on_message(message)
        stream.on_half_close()

    return exchange


def _prompt(spec: GuardrailPolicySpec, options: IppOptions, spread: int) -> Callable[[], object]:
    policy_ = compiled(spec)
    bodies = _turns([chat("guarded", prose(options.prompt_bytes, seed), spread) for seed in range(5)])
    facts = Facts()
    return lambda: policy_.check_request(next(bodies), facts)


def _stream(spec: GuardrailPolicySpec, options: IppOptions) -> Callable[[], object]:
    policy_ = compiled(spec)
    words = prose(options.events * 6, options.seed).split()[: options.events]
    chunks = [_event(word + " ") for word in words]

    def stream() -> None:
        guard = policy_.open_stream("sse")
        if guard is not None:
            for chunk in chunks:
                guard.feed(chunk, False)
            guard.feed(b"data: [DONE]\n\n", True)

    return stream


def _event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _turns(items: Sequence[bytes]) -> Iterator[bytes]:
    while True:
        yield from items


def complaints(result: IppResult) -> list[str]:
    """What is not as promised; empty when all is well."""
    found = [
        f"{one.name}: {number(one.value, 2)}, promised at most {one.limit:g}"
        for one in figures(result)
        if not one.is_met
    ]
    return found + ([] if result.through_envoy is None else extproc_report.complaints(result.through_envoy))


def figures(result: IppResult) -> list[Ratio]:
    """What is measured, with the limits of what is judged."""
    options = result.options
    prompt, passing = f"policy over {options.prompt_bytes} B of prompt", "passing on, CPU per request"
    return [
        Ratio(f"no policy / {passing}", result.against_passing(Server.IPP), LIMIT_RATIO),
        Ratio(f"a policy for others / {passing}", result.against_passing(Server.IPP_OTHERS), None),
        Ratio(f"{prompt}, µs", result.prompt_us, LIMIT_PROMPT_US),
        Ratio(f"{prompt} in {options.messages} messages, µs", result.spread_us, LIMIT_PROMPT_US),
        Ratio("policy per event of a stream, µs", result.chunk_us, LIMIT_CHUNK_US),
        Ratio("without network: passing on, µs per exchange", result.bare_us, None),
        Ratio("without network: no policy, µs per exchange", result.no_policy_us, None),
        Ratio("without network: a policy for others, µs per exchange", result.others_policy_us, None),
    ]


def render(result: IppResult, *, judged: bool = True) -> str:
    """The run as text for a terminal; words about promises only if it is to be judged."""
    rows = [
        [
            one.name,
            number(one.value, 2),
            number(one.limit, 2),
            extproc_report.verdict(one) if judged else "",
        ]
        for one in figures(result)
    ]
    parts = [render_table(["measured", "CPU", "limit", ""], rows)]
    found = result.through_envoy
    if found is not None:
        (scenario,) = found.options.scenarios()
        table = extproc_report.scenario_table(scenario, extproc_report.rows(found))
        parts.append(f"{extproc_report.heading_of(scenario)}\n{table}")
    return "\n".join(parts)
