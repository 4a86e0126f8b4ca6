"""Summaries of workers for tests."""

from __future__ import annotations

import time
from typing import Any

from dataplane.telemetry.summary import ProcessorSummary, Summary


def summary(worker: str = "w1", at: float | None = None, **fields: Any) -> Summary:
    """A second of a worker of the pool ``pool``."""
    return Summary(
        **{
            "worker": worker,
            "pool": "pool",
            "at": time.time() if at is None else at,
            "interval_s": 1.0,
            "requests": 10,
            "errors": 1,
            **fields,
        }
    )


def processor_summary(worker: str = "i-1", at: float | None = None, **fields: Any) -> ProcessorSummary:
    """A second of a replica of the payload processor ``edge``."""
    return ProcessorSummary(
        **{
            "worker": worker,
            "processor": "edge",
            "at": time.time() if at is None else at,
            "interval_s": 2.0,
            "requests": 10,
            "errors": 1,
            **fields,
        }
    )
