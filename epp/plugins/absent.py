"""Plugin types of llm-d that this build does not have, and what is missing for each.

Part of the error when a configuration names one, so that an operator knows whether there is another way. A
table of strings, like the catalogue; a type is in one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PRECISE: Final = (
    "this build has no index fed by KV-cache events; use approx-prefix-cache-producer and prefix-cache-scorer"
)
_BURST: Final = "this build does not place bursts jointly; use approx-prefix-cache-producer"
_LATENCY: Final = (
    "this build predicts no latencies; remove it, and score by load and prefix (token-load-scorer, "
    "prefix-cache-scorer)"
)
_FLOW: Final = "this build has no flow control; remove it to run without queueing"

ABSENT: Final[Mapping[str, str]] = {
    "precise-prefix-cache-producer": _PRECISE,
    "precise-prefix-cache-scorer": _PRECISE,
    "burst-prefix-cache-producer": _BURST,
    "predicted-latency-producer": _LATENCY,
    "latency-scorer": _LATENCY,
    "slo-headroom-tier-filter": _LATENCY,
    "global-strict-fairness-policy": _FLOW,
    "round-robin-fairness-policy": _FLOW,
    "program-aware-fairness": _FLOW,
    "fcfs-ordering-policy": _FLOW,
    "edf-ordering-policy": _FLOW,
    "slo-deadline-ordering-policy": _FLOW,
    "static-usage-limit-policy": _FLOW,
    "priority-holdback-policy": _FLOW,
    "soft-reflective-ceiling-policy": _FLOW,
    "sheddable-eviction-filter": _FLOW,
    "priority-then-time-eviction-order-policy": _FLOW,
    "k8s-notification-source": "this build does not watch Kubernetes; remove it",
}
