"""Who produces the data that plugins consume: missing producers are created, all are put in order."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from dataplane.plugin.base import DataKey
from dataplane.plugin.instances import AnyPlugin, Instances
from epp.graph.data_types import is_of_another_type, what_is_made
from epp.interfaces.attributes import DEFAULT_PRODUCERS, ENGINE_METRICS
from epp.interfaces.data_layer import EndpointExtractor, Extractor
from epp.interfaces.request_control import Consumer, DataProducer, Provider


def create_missing(instances: Instances, bound: Sequence[Extractor]) -> None:
    """Create the default producer of every consumed key nobody produces, transitively.

    ``bound`` are the extractors that a data source feeds; others produce nothing.
    """
    provided = {
        key
        for provider in instances.of(Provider)
        if not isinstance(provider, Extractor) or provider in bound
        for key in provider.produces
    }
    _offer_without_producer(provided, instances, bound)
    made = what_is_made(instances, bound)
    waiting = [plugin for plugin in instances.by_name.values() if isinstance(plugin, Consumer)]
    for plugin in waiting:
        for key in plugin.consumes:
            if key in provided or is_of_another_type(key, made):
                continue
            provided.add(key)
            created = _default_producer(key, plugin, instances)
            if isinstance(created, Provider):
                provided.update(created.produces)
            if isinstance(created, Consumer):
                waiting.append(created)


def _offer_without_producer(
    provided: set[DataKey[Any]], instances: Instances, bound: Sequence[Extractor]
) -> None:
    """Endpoint attributes can be read without naming their producer, as long as there is one only."""
    makers: dict[DataKey[Any], list[str]] = {}
    for extractor in (*bound, *instances.of(EndpointExtractor)):
        for key in extractor.produces:
            if key.producer:
                makers.setdefault(key.by(""), []).append(extractor.name.name)
    wanted = {key for consumer in instances.of(Consumer) for key in consumer.consumes}
    for key, names in makers.items():
        if len(names) > 1 and key in wanted:
            instances.problem(
                f"endpoint attribute {key} has several producers, {' and '.join(map(repr, names))}; "
                "say in the parameters of its readers which one is meant",
                "plugins",
            )
    provided.update(makers)


def _default_producer(key: DataKey[Any], consumer: AnyPlugin, instances: Instances) -> AnyPlugin | None:
    """The created producer of a key; None after noting why there is none."""
    name = consumer.name.name
    if key == ENGINE_METRICS:
        if any(problem.path.startswith("dataLayer.") for problem in instances.problems):
            return None  # it would be fed but for a mistake that is noted already
        instances.problem(
            f"'{name}' reads metrics of the model servers, but no data source with an extractor is "
            "configured; list one or remove injectDefaults: false",
            "dataLayer",
        )
        return None
    plugin_type = DEFAULT_PRODUCERS.get(key.type_name)
    if key.producer and key.producer != plugin_type:
        named = instances.by_name.get(key.producer)
        if instances.failed_as(key.producer):
            return None
        reason = "which does not produce it" if named is not None else "which is not configured"
        if isinstance(named, Extractor) and key in named.produces:
            reason = "which no data source feeds; list it under one in dataLayer.sources"
        instances.problem(f"'{name}' consumes {key.type_name} of '{key.producer}', {reason}", "plugins")
        return None
    if plugin_type is None and instances.unresolved:
        return None
    if plugin_type is None:
        message = f"no default producer found for missing data key {key}, consumed by '{name}'"
        instances.problem(message + _unfed(key, instances))
        return None
    absent = instances.absence(plugin_type)
    if absent:
        instances.problem(
            f"'{name}' reads {key.type_name} of '{plugin_type}', and {absent}; remove '{name}'", "plugins"
        )
        return None
    others = [p.name.name for p in instances.by_name.values() if p.name.type == plugin_type]
    if others:
        instances.warnings.append(
            f"'{name}' reads {key.type_name} of the default producer, so '{plugin_type}' is created beside "
            f"'{others[0]}'; name the producer in the parameters of '{name}' to use that one"
        )
    return instances.default(plugin_type)


def _unfed(key: DataKey[Any], instances: Instances) -> str:
    """The way out when an extractor would produce the key if a data source fed it."""
    for extractor in instances.of(Extractor):
        if key in (made.by("") for made in extractor.produces):
            return f"; '{extractor.name.name}' would produce it: list it under a source in dataLayer.sources"
    return ""


def in_order(instances: Instances) -> Sequence[DataProducer]:
    """Producers, each after those whose data it consumes; otherwise in order of creation."""
    producers: list[DataProducer] = instances.of(DataProducer)
    makers: dict[DataKey[Any], list[int]] = {}
    for i, producer in enumerate(producers):
        for key in producer.produces:
            makers.setdefault(key, []).append(i)
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for i, producer in enumerate(producers):
        needs = producer.consumes if isinstance(producer, Consumer) else ()
        sorter.add(i, *(maker for key in needs for maker in makers.get(key, ())))
    try:
        sorter.prepare()
    except CycleError as error:
        names = " -> ".join(_name(producers[i]) for i in error.args[1])
        instances.problem(f"data producers wait for one another: {names}", "plugins")
        return producers
    ordered: list[DataProducer] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered.extend(producers[i] for i in ready)
        sorter.done(*ready)
    return ordered


def _name(plugin: Any) -> str:
    name: str = plugin.name.name
    return name
