"""What the commands that validate files have alike: all mistakes of each file are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

from dataplane.config.encode import encode_struct
from dataplane.config.epp_sections import PluginSpec
from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.plugin.params import decode_params

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
VALID: Final = 0
INVALID: Final = 1


def judge_each(files: Sequence[str], out: TextIO, judge: Callable[[str], tuple[int, str]]) -> int:
    """Write what ``judge`` says of each file after its outcome, or the ``ConfigErrors`` that it raises.

    Returns ``VALID`` when that is the outcome of all, else ``INVALID``.
    """
    outcome = VALID
    for name in files:
        try:
            judged, said = judge(name)
            outcome |= judged
            out.write(said)
        except ConfigErrors as errors:
            outcome = INVALID
            out.writelines(f"{name}: error: {error}\n" for error in errors.errors)
        except ConfigError as error:
            outcome = INVALID
            out.write(f"{name}: error: {error}\n")
    return outcome


def shown_plugin(name: str, plugin: Any, spec: PluginSpec | None) -> dict[str, Any]:
    """An instance with its parameters and their defaults, as a document says with ``spec``, if any does.

    Parameters that are absent by default are left out.
    """
    params = decode_params(spec.parameters if spec is not None else None, plugin.info, "", [])
    values = encode_struct(params) if params is not None else {}
    return (
        {"name": name, "type": plugin.name.type}
        | ({"parameters": values} if values else {})
        | ({} if spec is not None else {"createdByDefault": True})
    )
