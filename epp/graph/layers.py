"""Data must be there before it is read: the order of the extension points, checked for every consumer.

Producers among themselves are put in order (``epp.graph.producers``). Across the extension points the order
is fixed, so a plugin that reads at an earlier point what a later one leaves would never find it.
"""

from __future__ import annotations

from typing import Any, Final

from dataplane.plugin.instances import AnyPlugin, Instances
from epp.interfaces.request_control import (
    Admitter,
    Consumer,
    DataProducer,
    FirstByteObserver,
    PreRequest,
    Provider,
    RequestHeaderProcessor,
    ResponseHeaderProcessor,
    ResponseObserver,
    ResponseReporter,
)
from epp.interfaces.scheduling import Filter, Picker, ProfileHandler, Scorer, StageDecider

STAGES: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("request headers", (RequestHeaderProcessor,)),
    ("data producers", (DataProducer,)),
    ("admission", (Admitter,)),
    ("scheduling", (ProfileHandler, Filter, Scorer, Picker, StageDecider)),
    ("pre-request", (PreRequest,)),
    ("response", (ResponseHeaderProcessor, FirstByteObserver, ResponseReporter, ResponseObserver)),
)
"""The extension points in the order in which a request passes them."""


def check_layers(instances: Instances) -> None:
    """Note every consumer that plays no part any more when its data is produced."""
    made: dict[Any, tuple[int, AnyPlugin]] = {}
    for provider in instances.of(Provider):
        played = _stages(provider)
        for key in provider.produces:
            if played and (key not in made or played[0] < made[key][0]):
                made[key] = played[0], provider
    for consumer in instances.of(Consumer):
        played = _stages(consumer)
        for key in consumer.consumes:
            stage, provider = made.get(key, (-1, None))
            if played and provider is not None and played[-1] < stage:
                instances.problem(
                    f"'{consumer.name.name}' reads {key} at {STAGES[played[-1]][0]}, but "
                    f"'{provider.name.name}' leaves it only at {STAGES[stage][0]}",
                    "plugins",
                )


def _stages(plugin: AnyPlugin) -> list[int]:
    """The extension points a plugin is part of, first to last."""
    return [i for i, (_, roles) in enumerate(STAGES) if any(isinstance(plugin, role) for role in roles)]
