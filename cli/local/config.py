"""The one YAML file that drives a gateway on one machine: `deploy/local.yaml`.

Decoding is strict: an unknown field, a wrong type or a value out of range is refused with its path
(`pools[1].simulator.replicas`) and, for a misspelt field, the nearest known one. Ports are optional
everywhere; 0 means "a free one". What the file means for processes is decided in `cli.local.plan`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import inspect

from dataplane.errors import ConfigError, did_you_mean

MIB = 1024 * 1024

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Section(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """Base of every part of the file."""


class GatewaySection(Section, frozen=True, kw_only=True):
    """Envoy: where clients connect and what it lets through."""

    address: str = "127.0.0.1"
    """Address of the public listener. The gateway has no authentication: loopback keeps it private."""
    port: Port = 0
    """Port of the public listener; a port in use is an error, 0 takes a free one."""
    admin_port: Port = 0
    """Envoy's admin interface, always on loopback."""
    max_body_bytes: Annotated[int, msgspec.Meta(ge=MIB, le=64 * MIB)] = 16 * MIB
    """Largest request body; beyond it the answer is 413. Also what one connection may buffer."""
    stream_idle_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 300.0
    """A request or response without a byte for this long is ended. There is no limit on its total time."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Envoy's worker threads."""
    observe_responses: bool = True
    """Show response bodies to the pickers, for usage, TTFT and cached tokens. False saves CPU."""


class SimulatorSection(Section, frozen=True, kw_only=True):
    """Simulated model servers of one pool."""

    replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 2
    """Endpoints of the pool."""
    profile: Text | None = None
    """Latency profile: a name the simulator knows, or a YAML file."""
    admin_port: Port = 0
    flags: list[str] = []
    """More flags of `pointsman sim`."""


class PickerSection(Section, frozen=True, kw_only=True):
    """The Endpoint Picker of one pool."""

    config: Mapping[str, Any] | None = None
    """An EndpointPickerConfig; the built-in scorers when left out. File discovery is added to it."""
    grpc_port: Port = 0
    health_port: Port = 0
    metrics_port: Port = 0
    flags: list[str] = []
    """More flags of `pointsman epp`."""


class PoolSection(Section, frozen=True, kw_only=True):
    """Model servers of one model, with their picker."""

    name: Name
    models: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=64)]
    """Names clients may ask for in `model`; the first is the one the simulated servers report."""
    failure_mode: Literal["FailOpen", "FailClose"] = "FailOpen"
    """Without the picker: round robin over the pool, or 503."""
    simulator: SimulatorSection = SimulatorSection()
    picker: PickerSection = PickerSection()


class LocalConfig(Section, frozen=True, kw_only=True):
    """The whole file."""

    gateway: GatewaySection = GatewaySection()
    pools: Annotated[list[PoolSection], msgspec.Meta(min_length=1, max_length=32)]


def load(path: Path) -> LocalConfig:
    """Read and check a file. Raises `ConfigError` with the path inside the document."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}; name another file with --config") from None
    return parse(text)


def parse(text: str) -> LocalConfig:
    """Check the text of a file. Raises `ConfigError`."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {str(error).replace(chr(10), ' ')}") from None
    try:
        config = msgspec.convert(document, LocalConfig)
    except msgspec.ValidationError as error:
        raise located(str(error)) from None
    check_unique((pool.name for pool in config.pools), "pools", "pool name")
    check_unique((model for pool in config.pools for model in pool.models), "pools", "model")
    return config


def with_free_ports(config: LocalConfig) -> LocalConfig:
    """Return the same configuration with every port left to be chosen."""
    replace = msgspec.structs.replace
    return replace(
        config,
        gateway=replace(config.gateway, port=0, admin_port=0),
        pools=[
            replace(
                pool,
                simulator=replace(pool.simulator, admin_port=0),
                picker=replace(pool.picker, grpc_port=0, health_port=0, metrics_port=0),
            )
            for pool in config.pools
        ],
    )


def check_unique(names: Iterable[str], path: str, what: str) -> None:
    """Refuse a name that two pools claim."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"{what} {twice[0]!r} appears more than once", path=path)


def located(message: str) -> ConfigError:
    """Turn msgspec's message into one with a path in front and a suggestion behind."""
    text, _, where = message.partition(" - at `$")
    path = where.rstrip("`").removeprefix(".")
    field = re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", text)
    if field:
        place = f"{path}.{field[2]}".lstrip(".")
        if field[1] == "missing required":
            return ConfigError("is required", path=place)
        return ConfigError(f"unknown field{did_you_mean(field[2], choices_at(path))}", path=place)
    if text.startswith("Invalid enum value"):
        return ConfigError(f"must be one of {', '.join(choices_at(path))}", path=path)
    return ConfigError(text[0].lower() + text[1:], path=path)


def choices_at(path: str) -> list[str]:
    """What may stand at `path` of the file: the fields of a section, or the values of a choice."""
    node: Any = inspect.type_info(LocalConfig)
    for step in re.findall(r"\w+|\[[^\]]*\]", path):
        if step.startswith("["):
            node = node.item_type if isinstance(node, inspect.ListType) else None
        else:
            fields = node.fields if isinstance(node, inspect.StructType) else ()
            node = next((field.type for field in fields if field.encode_name == step), None)
    if isinstance(node, inspect.StructType):
        return [field.encode_name for field in node.fields]
    return [str(value) for value in node.values] if isinstance(node, inspect.LiteralType) else []
