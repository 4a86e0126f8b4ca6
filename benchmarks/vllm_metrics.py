"""What a vLLM server's `/metrics` looks like: same families, same order of size as the real page.

A scraper's cost is the cost of finding a few series among many, so the page carries the histograms and the
process metrics a picker does not read. Only what changes is formatted per scrape.
"""

SMALL = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
TTFT_BUCKETS = (*SMALL, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
TOKEN_TIME_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, *TTFT_BUCKETS[11:19])
REQUEST_TIME_BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 7680.0)
TOKEN_COUNT_BUCKETS = tuple(float(base * 10**power) for power in range(5) for base in (1, 2, 5))

HISTOGRAMS = {
    "time_to_first_token_seconds": TTFT_BUCKETS,
    "inter_token_latency_seconds": TOKEN_TIME_BUCKETS,
    "time_per_output_token_seconds": TOKEN_TIME_BUCKETS,
    "request_time_per_output_token_seconds": TOKEN_TIME_BUCKETS,
    "e2e_request_latency_seconds": REQUEST_TIME_BUCKETS,
    "request_queue_time_seconds": REQUEST_TIME_BUCKETS,
    "request_inference_time_seconds": REQUEST_TIME_BUCKETS,
    "request_prefill_time_seconds": REQUEST_TIME_BUCKETS,
    "request_decode_time_seconds": REQUEST_TIME_BUCKETS,
    "request_prompt_tokens": TOKEN_COUNT_BUCKETS,
    "request_generation_tokens": TOKEN_COUNT_BUCKETS,
    "request_params_max_tokens": TOKEN_COUNT_BUCKETS,
    "iteration_tokens_total": TOKEN_COUNT_BUCKETS,
}

BLOCK_SIZE_TOKENS = 16
NUM_GPU_BLOCKS = 19_208
"""307 328 tokens of KV cache, the size of a published eight-replica set-up."""


class MetricsPage:
    """The page of one server; `render` is a few concatenations."""

    def __init__(self, model: str) -> None:
        self._labels = f'engine="0",model_name="{model}"'
        self._middle = "".join([*self._counters(), *self._histograms(), *runtime_metrics()])

    def render(self, running: int, waiting: int, kv_usage: float) -> bytes:
        """The page with the three gauges a picker reads; `kv_usage` is a fraction of 1."""
        labels = self._labels
        return (
            "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{{{labels}}} {running}.0\n"
            "# HELP vllm:num_requests_waiting Number of requests waiting to be processed.\n"
            "# TYPE vllm:num_requests_waiting gauge\n"
            f"vllm:num_requests_waiting{{{labels}}} {waiting}.0\n"
            "# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.\n"
            "# TYPE vllm:kv_cache_usage_perc gauge\n"
            f"vllm:kv_cache_usage_perc{{{labels}}} {kv_usage:.6f}\n"
            f"{self._middle}"
        ).encode()

    def _counters(self) -> list[str]:
        names = ("prefix_cache_queries", "prefix_cache_hits", "prompt_tokens", "generation_tokens")
        lines = [
            f"# HELP vllm:{name} Number of tokens.\n# TYPE vllm:{name} counter\n"
            f"vllm:{name}_total{{{self._labels}}} 1.048576e+06\n"
            for name in names
        ]
        lines.append("# HELP vllm:request_success Finished requests.\n# TYPE vllm:request_success counter\n")
        lines += [
            f'vllm:request_success_total{{{self._labels},finished_reason="{reason}"}} 1024.0\n'
            for reason in ("stop", "length", "abort")
        ]
        lines.append(
            "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
            "# TYPE vllm:cache_config_info gauge\n"
            f'vllm:cache_config_info{{block_size="{BLOCK_SIZE_TOKENS}",cache_dtype="auto",engine="0",'
            f'gpu_memory_utilization="0.9",num_gpu_blocks="{NUM_GPU_BLOCKS}"}} 1.0\n'
        )
        return lines

    def _histograms(self) -> list[str]:
        lines = []
        for name, bounds in HISTOGRAMS.items():
            lines.append(f"# HELP vllm:{name} Histogram.\n# TYPE vllm:{name} histogram\n")
            lines += [
                f'vllm:{name}_bucket{{{self._labels},le="{bound}"}} {1024.0 * number}\n'
                for number, bound in enumerate([*bounds, "+Inf"], start=1)
            ]
            total = 1024.0 * (len(bounds) + 1)
            lines.append(f"vllm:{name}_count{{{self._labels}}} {total}\n")
            lines.append(f"vllm:{name}_sum{{{self._labels}}} {total * 1.5}\n")
        return lines


def runtime_metrics() -> list[str]:
    """What the Python and HTTP instrumentation of the server adds."""
    lines = [
        f'python_gc_objects_collected_total{{generation="{generation}"}} 10000.0\n' for generation in range(3)
    ]
    lines += [
        f"process_{name} 1.5e+09\n"
        for name in ("virtual_memory_bytes", "resident_memory_bytes", "cpu_seconds_total", "open_fds")
    ]
    for handler in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health"):
        lines.append(f'http_requests_total{{handler="{handler}",method="POST",status="2xx"}} 1024.0\n')
        lines += [
            f'http_request_duration_seconds_bucket{{handler="{handler}",le="{bound}",method="POST"}} 512.0\n'
            for bound in REQUEST_TIME_BUCKETS
        ]
    return lines
