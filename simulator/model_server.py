"""One life of a simulated model server, without its sockets: engine, cache, metrics, answers, failures.

Killing a replica ends this life; reviving it makes a new one with an empty cache and counters at zero, as a
restarted process has.
"""

import asyncio
import random
from collections.abc import Mapping

from simulator.engine import Engine, Limits, QueueFullError
from simulator.errors import ApiError
from simulator.faults import FaultInjector
from simulator.metrics import Metrics
from simulator.options import RuntimeOptions, SimOptions, latency_of, merge_runtime, runtime_of, served_names
from simulator.runner import EngineRunner
from simulator.sequence import Sequence
from simulator.text import AnswerSource


class ModelServer:
    """What the HTTP handlers of a replica work on."""

    def __init__(
        self,
        options: SimOptions,
        limits: Limits,
        answers: AnswerSource,
        index: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.options = options
        self.limits = limits
        self.answers = answers
        self.runtime = runtime_of(options)
        self.faults = FaultInjector(f"faults {options.seed} {index}")
        self._noise = random.Random(f"latency {options.seed} {index}")  # noqa: S311
        self._ids = random.Random(f"ids {options.seed} {index}")  # noqa: S311
        self.names = served_names(options)
        self.adapters = {module.name: module for module in options.lora_modules}
        self.metrics = Metrics(self.names[0], limits, with_adapters=bool(self.adapters))
        latency = latency_of(self.runtime, limits.max_num_seqs, self._noise)
        self.engine = Engine(limits, latency, self.metrics)
        self.runner = EngineRunner(self.engine, loop)
        self.metrics_asked = 0
        """Requests for the metrics page, answered or not."""
        self._metrics_answered = asyncio.Event()
        self._set_metrics_answered()

    def adapter_of(self, model: str | None) -> str:
        """Return the adapter that serves `model`, empty for the base model; ApiError 404 if it is unknown."""
        if not model or model in self.names:
            return ""
        if model in self.adapters:
            return model
        raise ApiError(404, f"The model `{model[:200]}` does not exist here.", param="model")

    def new_id(self) -> str:
        """Return an identifier for a request that brought none."""
        return f"{self._ids.getrandbits(128):032x}"

    def submit(self, sequences: list[Sequence]) -> None:
        """Start `sequences`; ApiError 429 when the waiting queue has no place for them."""
        try:
            self.runner.submit(sequences)
        except QueueFullError as error:
            message = f"The waiting queue is full ({self.limits.max_waiting} sequences); try again later."
            raise ApiError(429, message, headers={"Retry-After": "1"}) from error

    def change_runtime(self, changes: Mapping[str, object]) -> RuntimeOptions:
        """Apply `changes` to speed and failures, all or none (OptionsError); return the options in force."""
        runtime = merge_runtime(self.runtime, changes)
        self.engine.latency = latency_of(runtime, self.limits.max_num_seqs, self._noise)
        self.runtime = runtime
        self._set_metrics_answered()
        return runtime

    async def metrics_page(self) -> bytes:
        """Return the metrics page, once it may be answered."""
        self.metrics_asked += 1
        if self.runtime.hang_metrics:
            await self._metrics_answered.wait()
        return self.metrics.render(self.engine)

    def _set_metrics_answered(self) -> None:
        if self.runtime.hang_metrics:
            self._metrics_answered.clear()
        else:
            self._metrics_answered.set()
