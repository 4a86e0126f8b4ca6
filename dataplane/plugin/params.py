"""A plugin's parameters: plain data to its parameters struct, strictly and with paths in the errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataplane.config.decode import decode_struct
from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, PluginParams


def decode_params(
    raw: Mapping[str, Any] | None, info: PluginInfo, path: str, problems: list[ConfigError]
) -> PluginParams | None:
    """The parameters of one instance; absent ones take their defaults.

    Mistakes are appended to ``problems`` as ``<path>.<field>``; after one the result is not to be used.
    """
    return decode_struct(None if raw is None else dict(raw), info.params, path, problems)
