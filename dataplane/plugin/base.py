"""What a plugin is, for every process that has plugins.

A plugin is one class with an ``info`` (type string, stability, parameters) and one or more of the
extension interfaces of its process. It is constructed once per configured instance with
``(name, params, handle)`` and holds no global state.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import msgspec


class Stability(StrEnum):
    """How much a plugin's behaviour may still change. Alpha ones need ``--allow-experimental-plugins``."""

    ALPHA = "Alpha"
    BETA = "Beta"
    STABLE = "Stable"


class PluginParams(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True, kw_only=True):
    """Base of every plugin's parameters: unknown fields are refused, YAML names are camelCase."""

    def references(self) -> Mapping[str, str]:
        """Other plugin instances that are named here, which are built first: parameter path -> name."""
        return {}


class PluginInfo(NamedTuple):
    """The static description of a plugin class."""

    type: str
    params: builtins.type[PluginParams] = PluginParams
    stability: Stability = Stability.BETA


class TypedName(NamedTuple):
    """A configured instance: ``type`` is the catalogue's, ``name`` the operator's."""

    type: str
    name: str

    def __str__(self) -> str:
        return self.name if self.name == self.type else f"{self.name} ({self.type})"


@runtime_checkable
class Plugin(Protocol):
    """Common to all plugins."""

    info: ClassVar[PluginInfo]
    name: TypedName


T = TypeVar("T")


class DataKey(Generic[T]):
    """Names a value that one plugin produces for a request and others consume.

    ``type_name`` is what the value is (``PrefixCacheMatchInfo``); ``producer`` is the instance name of
    the producing plugin, ``""`` for the default producer; ``value`` is the class of the values, by which
    producers and consumers of different packages are checked against one another. There is one object per
    combination of the three, so that keys compare and hash by identity: they are looked up many times per
    request. A key without ``value`` means the class with which its ``type_name`` was first declared.
    """

    __slots__ = ("producer", "type_name", "value")
    _known: ClassVar[dict[tuple[str, str, type[Any] | None], DataKey[Any]]] = {}
    _values: ClassVar[dict[str, type[Any]]] = {}

    type_name: str
    producer: str
    value: type[Any] | None
    """None = nobody has said."""

    def __new__(cls, type_name: str, producer: str = "", value: type[Any] | None = None) -> Self:
        if value is None:
            value = cls._values.get(type_name)
        elif type_name not in cls._values:
            cls._declare(type_name, value)
        known = cls._known.get((type_name, producer, value))
        if known is None:
            known = cls._known[type_name, producer, value] = super().__new__(cls)
            known.type_name = type_name
            known.producer = producer
            known.value = value
        return known  # type: ignore[return-value]  # the table holds keys of every value type

    @classmethod
    def _declare(cls, type_name: str, value: type[Any]) -> None:
        """The first word on a kind of value; keys of it that are there already meant this."""
        cls._values[type_name] = value
        for key in [key for key in cls._known.values() if key.type_name == type_name]:
            del cls._known[type_name, key.producer, None]
            key.value = value
            cls._known[type_name, key.producer, value] = key

    def by(self, producer: str) -> DataKey[T]:
        """The same kind of value from a named producer."""
        return DataKey(self.type_name, producer, self.value)

    def __repr__(self) -> str:
        return f"{self.type_name}/{self.producer}" if self.producer else self.type_name
