"""A payload processor's exchanges driven by hand: a pipeline from a configuration, requests and answers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Exchange, HttpRequest, HttpResponse
from dataplane.headers import Headers
from ipp.handler import ProcessorHandler
from ipp.interfaces.handle import Handle
from ipp.metrics import IppMetrics
from ipp.pipeline import Pipeline, load_pipeline
from ipp.policies import PolicyHolder
from ipp.registry import REGISTRY
from ipp.verdict_log import VerdictLog
from tests.support.clock import ManualClock


def pipeline_of(
    config: Mapping[str, Any] | str | bytes,
    metrics: IppMetrics | None = None,
    policies: PolicyHolder | None = None,
    clock: ManualClock | None = None,
) -> Pipeline:
    """The pipeline of a configuration; a mapping gets its apiVersion and kind."""
    if isinstance(config, Mapping):
        head = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "PayloadProcessorConfig"}
        config = json.dumps({**head, **config})
    text = config.encode() if isinstance(config, str) else config
    counted = metrics or IppMetrics()
    rng = random.Random(1)
    holder = policies or PolicyHolder(rng)
    handle = Handle(
        counted,
        holder,
        VerdictLog(counted, "ipp", ""),
        clock or ManualClock(),
        rng,
        has_policies=policies is not None,
    )
    return load_pipeline(text, handle, REGISTRY)


def one_profile(plugins: Sequence[Mapping[str, Any]], *, response: Sequence[str] = ()) -> dict[str, Any]:
    """A configuration that runs these plugins on requests, those of ``response`` on answers instead."""
    names = [str(plugin.get("name") or plugin["type"]) for plugin in plugins]
    request = [{"pluginRef": name} for name in names if name not in response]
    lists = {"request": request, "response": [{"pluginRef": name} for name in response]}
    return {"plugins": list(plugins), "profiles": [{"name": "default", "plugins": lists}]}


class Rig:
    """One processor. ``ask`` gives the decision about a request, and remembers its exchange."""

    def __init__(self, config: Mapping[str, Any] | str | bytes, policies: PolicyHolder | None = None) -> None:
        self.metrics = IppMetrics()
        self.clock = ManualClock()
        self.pipeline = pipeline_of(config, self.metrics, policies, self.clock)
        self.handler = ProcessorHandler(self.pipeline, self.metrics)
        self.exchange: Exchange = self.handler.open()
        self.later: list[Any] = []

    def ask(self, body: Any, *headers: tuple[str, str]) -> Proceed:
        """The decision; bodies that are no bytes are sent as JSON. Raises what the request ends in."""
        self.exchange = self.handler.open()
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        path = [(":method", "POST" if raw else "GET"), (":path", "/v1/chat/completions")]
        request = HttpRequest(Headers.of([*path, *headers]), raw, None)
        found = self.exchange.on_request(request, self.later.append)
        assert isinstance(found, Proceed)
        return found

    def answer(self, *headers: tuple[str, str], status: int = 200, end: bool = False) -> Proceed:
        """What is made of the head of the answer to the last request."""
        pairs = [(":status", str(status)), *headers]
        found = self.exchange.on_response_headers(HttpResponse(Headers.of(pairs), status, end, None))
        assert isinstance(found, Proceed)
        return found

    def counted(self, name: str, **labels: str) -> float:
        """A counter's value by its full name."""
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        wanted = f"{name}{{{text}}} " if text else f"{name} "
        for block in self.metrics.numbers.expose():
            for line in block.splitlines():
                if line.startswith(wanted):
                    return float(line.removeprefix(wanted))
        return 0.0


def headers_of(answer: Proceed) -> dict[str, str]:
    """The headers an answer sets."""
    return {name: value.decode() for name, value in answer.set_headers}
