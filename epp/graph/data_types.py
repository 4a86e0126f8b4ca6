"""What is read must be what is left: values of one name, whose classes are declared apart, are compared.

Keys of different classes are different keys, so a reader would find nothing under its own while its producer
fills the other. That is a mistake of the configuration, or of a package, and told when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dataplane.plugin.base import DataKey
from dataplane.plugin.instances import AnyPlugin, Instances
from epp.interfaces.data_layer import EndpointExtractor, Extractor
from epp.interfaces.request_control import Consumer, OptionalConsumer, Provider

Made = dict[tuple[str, str], dict[DataKey[Any], AnyPlugin]]
"""By name and producer as a reader writes them: the keys that are left, and by whom."""


def what_is_made(instances: Instances, bound: Sequence[Extractor]) -> Made:
    """All that is left on requests and endpoints; extractors that are not ``bound`` leave nothing."""
    made: Made = {}
    for provider in instances.of(Provider):
        if isinstance(provider, Extractor) and provider not in bound:
            continue
        for key in provider.produces:
            made.setdefault((key.type_name, key.producer), {}).setdefault(key, provider)
            if isinstance(provider, Extractor | EndpointExtractor):
                made.setdefault((key.type_name, ""), {}).setdefault(key.by(""), provider)
    return made


def is_of_another_type(key: DataKey[Any], made: Made) -> bool:
    """Whether what is left under the names of ``key`` is of another class only."""
    left = made.get((key.type_name, key.producer))
    return left is not None and key not in left


def check_types(instances: Instances, bound: Sequence[Extractor]) -> None:
    """Note every plugin that reads as one class what is left as another."""
    made = what_is_made(instances, bound)
    for plugin in instances.by_name.values():
        for key in _read(plugin):
            if not is_of_another_type(key, made):
                continue
            left, provider = next(iter(made[key.type_name, key.producer].items()))
            name = plugin.name.name
            instances.problem(
                f"'{name}' reads {key.type_name} as {_class(key)}, but '{provider.name.name}' "
                f"leaves it as {_class(left)}; name a producer in the parameters of '{name}' whose "
                f"{key.type_name} is {_class(key)}, or remove one of the two",
                "plugins",
            )


def _read(plugin: AnyPlugin) -> Iterator[DataKey[Any]]:
    if isinstance(plugin, Consumer):
        yield from plugin.consumes
    if isinstance(plugin, OptionalConsumer):
        yield from plugin.may_consume


def _class(key: DataKey[Any]) -> str:
    return "a value of no declared type" if key.value is None else key.value.__name__
