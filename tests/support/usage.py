"""Usage records for tests."""

from __future__ import annotations

from typing import Any

from dataplane.usage.record import UsageRecord


def usage_record(number: int, **fields: Any) -> UsageRecord:
    """A record; its number is its id."""
    return UsageRecord(
        **{
            "id": f"{number:032x}",
            "at": 1_800_000_000.0,
            "pool": "pool",
            "requested_model": "chat",
            "served_model": "llama",
            "tenant": "research",
            "status": 200,
            "prompt_tokens": 10,
            "completion_tokens": 5,
            **fields,
        }
    )
