"""Data as the text that is kept of it: written one way only, so that the same content is the same text.

Text rather than a column of JSON, because databases read numbers back differently.
"""

from __future__ import annotations

import json
from typing import Any

from controlplane.core.resources import check_texts
from dataplane.errors import ConfigError


def canonical(data: Any, problems: list[ConfigError]) -> str | None:
    """Sorted keys, no spaces; None after noting in ``problems`` what databases or JSON do not take."""
    unstorable: list[ConfigError] = []
    try:
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        check_texts(data, "", unstorable)
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(ConfigError(f"holds what is no JSON: {error}"))
        return None
    problems.extend(unstorable)
    return None if unstorable else text
