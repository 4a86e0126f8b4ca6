"""The reference's table of data, default producers and consumers is what the plugins declare."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from typing import Any

from dataplane.errors import ConfigError
from epp.graph.registry import REGISTRY
from epp.interfaces.attributes import DEFAULT_PRODUCERS
from tests.architecture.tree import ROOT
from tests.support.pool import make_plugin

PAGE = ROOT / "docs/reference/config.md"

PARAMETERS: dict[str, dict[str, Any]] = {
    "utilization-filter": {"conditions": [{"metric": "active-requests", "maxValue": 1}]},
    "session-affinity-filter": {
        "strategy": "session_id",
        "sessionIdConfig": {"sources": [{"attribute": "SessionID"}, {"attribute": "agent-identity"}]},
    },
}
PARAMETERS["session-affinity-scorer"] = PARAMETERS["session-affinity-filter"]
PARAMETERS["multicluster-session-affinity-filter"] = PARAMETERS["session-affinity-filter"]
"""Parameters without which a plugin does not read all it can read."""


def declared() -> dict[str, set[str]]:
    """Data -> plugin types that read it; plugins that cannot be built without more are asked as classes."""
    found: dict[str, set[str]] = defaultdict(set)
    for kind in REGISTRY:
        plugin: Any = REGISTRY.resolve(kind)
        with contextlib.suppress(ConfigError, KeyError):
            plugin = make_plugin(plugin, None, PARAMETERS.get(kind))
        keys = getattr(plugin, "consumes", ())
        for key in keys if isinstance(keys, list | tuple) else ():
            found[key.type_name].add(kind)
    return found


def documented() -> dict[str, tuple[str, set[str]]]:
    """Data -> its default producer and the plugins that read it, as the page has them."""
    rows = re.findall(r"^\| `(\w+)` \| \[([\w-]+)\]\(.+?\) \| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    return {data: (producer, set(re.findall(r"\[([\w-]+)\]", readers))) for data, producer, readers in rows}


def default_producers() -> dict[str, str]:
    """Data -> the type that is created to produce it; data whose producer this build lacks left out."""
    return {data: kind for data, kind in DEFAULT_PRODUCERS.items() if kind in REGISTRY}


def test_the_table_names_every_default_producer():
    listed = {data: producer for data, (producer, _) in documented().items()}
    assert listed == default_producers(), "mend the table of data in docs/reference/config.md"


def test_the_table_names_every_reader():
    found = declared()
    listed = {data: readers for data, (_, readers) in documented().items()}
    read = {data: found[data] for data in default_producers()}
    assert listed == read, "mend the table of data in docs/reference/config.md"
