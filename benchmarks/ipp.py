"""The ipp benchmark: what a payload processor costs, in its own process and without any network.

Exchanges are driven as the transport drives them: encoded messages in, encoded answers out, nothing between.
Three things are measured. What the processor adds to an exchange that only passes on, when no policy holds
for it; what one policy with many keywords, patterns and personal data costs for one large prompt; and what it
costs for one event of a stream. Kinds take turns in random order, so that a busy neighbour slows all alike.
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

from benchmarks.machine import Machine, describe_machine
from benchmarks.tables import number, render_table
from dataplane.clock import SYSTEM_CLOCK
from dataplane.config.guardrails import GuardrailPolicySpec
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Decision, Ending, Exchange, HttpRequest, HttpResponse, Resume
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
"""Of an exchange that no policy holds for, to one that only passes on."""
LIMIT_PROMPT_US = 3000.0
LIMIT_CHUNK_US = 100.0
SLOWEST_DROPPED = 0.25
BATCH = 50
"""Exchanges timed together."""

CONFIG = b"""
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins: [{type: guardrails}]
profiles:
- {name: default, plugins: {request: [{pluginRef: guardrails}], response: [{pluginRef: guardrails}]}}
"""
VOCABULARY = ("the", "of", "to", "and", "was", "for", "with", "they", "have", "this", "from", "what", "there")
UNCHANGED = Proceed()


class IppOptions(msgspec.Struct, frozen=True):
    """The flags of `pointsman bench ipp`."""

    body_bytes: int = 2048
    prompt_bytes: int = 40_000
    keywords: int = 2000
    patterns: int = 50
    events: int = 200
    rounds: int = 60
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
    chunk_us: float
    """The policy over one event of a stream."""

    @property
    def ratio(self) -> float:
        """What guardrails add where no policy holds."""
        return self.no_policy_us / self.bare_us


class Bare:
    """Passes everything on."""

    needs_request_body = True
    observes_response_body = False

    def on_request(self, _: HttpRequest, __: Resume) -> Decision:
        """Go on."""
        return UNCHANGED

    def on_response_headers(self, _: HttpResponse) -> Decision:
        """Go on."""
        return UNCHANGED

    def on_response_chunk(self, chunk: bytes, end: bool) -> None:
        """Nothing to watch."""

    def on_response_end(self, _: bytes) -> None:
        """Nothing to add."""

    def on_end(self, ending: Ending) -> None:
        """Nothing to release."""


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


def chat(model: str, text: str) -> bytes:
    """A request."""
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()


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
    return ProcessorHandler(load_pipeline(CONFIG, handle, REGISTRY), metrics)


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
        "bare": (_exchange(Bare, sent), BATCH),
        "no policy": (_exchange(handler([]).open, sent), BATCH),
        "another's policy": (_exchange(handler([("bench", spec)]).open, sent), BATCH),
        "prompt": (_prompt(spec, options), 1),
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
        found["stream"] / options.events,
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


def _prompt(spec: GuardrailPolicySpec, options: IppOptions) -> Callable[[], object]:
    policy_ = compiled(spec)
    bodies = _turns([chat("guarded", prose(options.prompt_bytes, seed)) for seed in range(5)])
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
    return [
        f"{what}: {found:.2f}, promised at most {limit:g}"
        for what, found, limit in _figures(result)
        if found > limit
    ]


def _figures(result: IppResult) -> list[tuple[str, float, float]]:
    options = result.options
    return [
        ("no policy / passing on, CPU per exchange", result.ratio, LIMIT_RATIO),
        (f"policy over {options.prompt_bytes} B of prompt, µs", result.prompt_us, LIMIT_PROMPT_US),
        ("policy per event of a stream, µs", result.chunk_us, LIMIT_CHUNK_US),
    ]


def render(result: IppResult, *, judged: bool = True) -> str:
    """The run as text for a terminal; words about promises only if it is to be judged."""
    rows = [
        ["passing on, µs per exchange", number(result.bare_us, 1), "-", ""],
        ["no policy, µs per exchange", number(result.no_policy_us, 1), "-", ""],
        ["a policy for others, µs per exchange", number(result.others_policy_us, 1), "-", ""],
        *(
            [
                what,
                number(found, 2),
                number(limit, 2),
                _word(found <= limit, judged=judged),
            ]
            for what, found, limit in _figures(result)
        ),
    ]
    return render_table(["measured", "CPU", "limit", ""], rows)


def _word(is_met: bool, *, judged: bool) -> str:
    return ("ok" if is_met else "MISSED") if judged else ""
