"""The metrics of one replica under vLLM's names, labels and buckets.

Gauges are read from the engine when they are rendered, so they are true at any moment; counters and
histograms are told by the engine through the `Observer` methods.
"""

import time

from simulator.engine import Engine, Limits
from simulator.exposition import Counter, Histogram, heading, label_text
from simulator.sequence import Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

FIRST_TOKEN_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_BOUNDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BOUNDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)

FINISH_REASONS = ("stop", "length", "abort")


def size_bounds(largest: int) -> list[float]:
    """Return the bounds 1, 2, 5, 10, 20, ... up to `largest`."""
    bounds: list[float] = []
    decade = 1
    while True:
        for step in (1, 2, 5):
            if step * decade > largest:
                return bounds
            bounds.append(step * decade)
        decade *= 10


class Metrics:
    """Counters and histograms of one engine; implements the engine's `Observer`."""

    def __init__(self, model: str, limits: Limits, *, with_adapters: bool) -> None:
        self._labels = labels = {"model_name": model, "engine": "0"}
        self._limits = limits
        self._with_adapters = with_adapters
        self._gauges = self._gauge_template().encode()
        self._make_counters(labels)
        self._make_histograms(labels, size_bounds(limits.max_model_len))

    def _gauge_template(self) -> str:
        plain = label_text(self._labels).replace("%", "%%")
        gauges = (
            ("num_requests_running", "Sequences in the batch.", "%d"),
            ("num_requests_waiting", "Sequences in the waiting queue.", "%d"),
            ("kv_cache_usage_perc", "Share of KV-cache blocks that sequences hold, 0 to 1.", "%r"),
        )
        lines = [
            heading(f"vllm:{name}", "gauge", text) + f"vllm:{name}{plain} {form}\n"
            for name, text, form in gauges
        ]
        info = {
            "block_size": str(self._limits.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(self._limits.prefix_caching),
            "engine": "0",
            "num_gpu_blocks": str(self._limits.num_blocks),
        }
        name = "vllm:cache_config_info"
        lines.append(heading(name, "gauge", "Size and options of the KV cache."))
        lines.append(f"{name}{label_text(info)} 1\n")
        return "".join(lines)

    def _make_counters(self, labels: dict[str, str]) -> None:
        def counter(name: str, text: str) -> Counter:
            name = f"vllm:{name}_total"
            return Counter(name, labels, heading(name, "counter", text))

        self._queries = counter("prefix_cache_queries", "Prompt tokens looked up in the KV cache.")
        self._hits = counter("prefix_cache_hits", "Prompt tokens found in the KV cache.")
        self._preemptions = counter("num_preemptions", "Running sequences sent back to the queue.")
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of sequences that got a token.")
        self._generation_tokens = counter("generation_tokens", "Tokens generated.")
        name = "vllm:request_success_total"
        head = heading(name, "counter", "Sequences that ended, by reason.")
        self._ended: dict[str, Counter] = {}
        for reason in FINISH_REASONS:
            self._ended[reason] = Counter(name, {**labels, "finished_reason": reason}, head)
            head = ""

    def _make_histograms(self, labels: dict[str, str], sizes: list[float]) -> None:
        def seconds(name: str, text: str, bounds: tuple[float, ...] = REQUEST_BOUNDS) -> Histogram:
            return Histogram(f"vllm:{name}_seconds", text, bounds, labels)

        def tokens(name: str, text: str) -> Histogram:
            return Histogram(f"vllm:{name}", text, sizes, labels)

        self._ttft = seconds("time_to_first_token", "Arrival to first token.", FIRST_TOKEN_BOUNDS)
        self._itl = seconds("inter_token_latency", "Between two tokens.", TOKEN_BOUNDS)
        self._tpot = seconds("time_per_output_token", "Between two tokens, older name.", TOKEN_BOUNDS)
        self._mean_tpot = seconds(
            "request_time_per_output_token", "Mean time between tokens of a request.", TOKEN_BOUNDS
        )
        self._e2e = seconds("e2e_request_latency", "Arrival to last token.")
        self._queue = seconds("request_queue_time", "Arrival to first scheduling.")
        self._inference = seconds("request_inference_time", "First scheduling to last token.")
        self._prefill = seconds("request_prefill_time", "First scheduling to first token.")
        self._decode = seconds("request_decode_time", "First token to last token.")
        self._prompt_size = tokens("request_prompt_tokens", "Prompt tokens of a request.")
        self._output_size = tokens("request_generation_tokens", "Generated tokens of a request.")
        self._asked = tokens("request_params_max_tokens", "Most tokens a request asked for.")
        self._longest = tokens("request_max_num_generation_tokens", "Generated tokens of the longest choice.")
        self._longest_old = tokens("max_num_generation_tokens", "The same, name used by older dashboards.")

    def scheduled(self, sequence: Sequence) -> None:
        """Count the prompt's look-up in the cache."""
        if self._limits.prefix_caching:
            self._queries.value += sequence.prompt_length
            self._hits.value += sequence.cached_tokens
        self._queue.observe(sequence.scheduled_at - sequence.arrived_at)

    def preempted(self) -> None:
        """Count one preemption."""
        self._preemptions.value += 1

    def first_token(self, sequence: Sequence) -> None:
        """Count the prompt and the first token."""
        self._prompt_tokens.value += sequence.prompt_length
        self._generation_tokens.value += 1
        self._ttft.observe(max(0.0, sequence.first_token_at - sequence.arrived_at))

    def tokens(self, interval: float, count: int) -> None:
        """Count further tokens of `count` sequences."""
        self._generation_tokens.value += count
        self._itl.observe(interval, count)
        self._tpot.observe(interval, count)

    def finished(self, sequence: Sequence, now: float, reason: str) -> None:
        """Count the end of a sequence and, unless it was aborted, its times and sizes."""
        self._ended[reason].value += 1
        if reason == "abort":
            return
        scheduled, generated = sequence.scheduled_at, sequence.generated
        self._e2e.observe(max(0.0, now - sequence.arrived_at))
        self._inference.observe(max(0.0, now - scheduled))
        self._prompt_size.observe(sequence.prompt_length)
        if generated == 0:
            self._prompt_tokens.value += sequence.prompt_length
            return
        decode = sequence.last_token_at - sequence.first_token_at
        self._prefill.observe(max(0.0, sequence.first_token_at - scheduled))
        self._decode.observe(decode)
        if generated > 1:
            self._mean_tpot.observe(decode / (generated - 1))
        for histogram in (self._output_size, self._longest, self._longest_old):
            histogram.observe(generated)
        if sequence.max_tokens is not None:
            self._asked.observe(sequence.max_tokens)

    def render(self, engine: Engine) -> bytes:
        """Return all metrics in the Prometheus text format."""
        cache = engine.cache
        gauges = self._gauges % (len(engine.running), len(engine.waiting), cache.used / cache.capacity)
        parts = [gauges]
        if self._with_adapters:
            parts.append(self._adapters(engine))
        parts += [
            *(self._queries.render(), self._hits.render(), self._preemptions.render()),
            *(self._prompt_tokens.render(), self._generation_tokens.render()),
            *(counter.render() for counter in self._ended.values()),
            *(self._ttft.render(), self._itl.render(), self._tpot.render(), self._mean_tpot.render()),
            *(self._e2e.render(), self._queue.render(), self._inference.render()),
            *(self._prefill.render(), self._decode.render()),
            *(self._prompt_size.render(), self._output_size.render(), self._asked.render()),
            *(self._longest.render(), self._longest_old.render()),
        ]
        return b"".join(parts)

    def _adapters(self, engine: Engine) -> bytes:
        running = sorted({sequence.adapter for sequence in engine.running if sequence.adapter})
        waiting = sorted({sequence.adapter for sequence in engine.waiting if sequence.adapter})
        name = "vllm:lora_requests_info"
        labels = {
            "max_lora": str(self._limits.max_loras),
            "running_lora_adapters": ",".join(running),
            "waiting_lora_adapters": ",".join(waiting),
        }
        head = heading(name, "gauge", "Adapters in use; the value is the time of the sample.")
        return f"{head}{name}{label_text(labels)} {time.time():.6f}\n".encode()
