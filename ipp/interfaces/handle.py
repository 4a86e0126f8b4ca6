"""What a plugin is given at construction: the shared parts of the process, and nothing global."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dataplane.clock import SYSTEM_CLOCK, Clock
from dataplane.plugin.base import Plugin
from ipp.interfaces.models import ModelData
from ipp.metrics import IppMetrics
from ipp.policies import PolicyHolder
from ipp.verdict_log import VerdictLog


@dataclass(slots=True)
class Handle:
    """Shared parts. ``plugins`` holds the instances built so far, by name."""

    metrics: IppMetrics
    policies: PolicyHolder
    """The guardrail policies in force."""
    verdicts: VerdictLog
    """Takes what they find."""
    clock: Clock = SYSTEM_CLOCK
    rng: random.Random = field(default_factory=random.Random)
    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Raw parameters of the instance under construction."""
    data: ModelData = field(default_factory=ModelData)
    """Tables of models, of the configuration under construction."""
    has_policies: bool = False
    """Whether anybody says which policies there are."""
