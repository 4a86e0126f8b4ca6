"""From what a control plane sends of a pool to its objects: all of them, or everything that is wrong.

Unlike files, which people edit one by one, a set from the control plane is whole: one document that cannot be
used, or that is not for this pool, refuses the set. Each document is judged by the code that judges files.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dataplane.errors import ConfigError
from epp.objects.documents import Scope, read_object
from epp.objects.files import MAX_OBJECTS, Kept, Key, Reading

SOURCE: Final = "control plane"


def read_received(payload: bytes, scope: Scope) -> tuple[Reading, list[ConfigError]]:
    """The objects in JSON ``{"documents": [...]}``; with any problem the reading means nothing."""
    try:
        raw: Any = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        return Reading(), [ConfigError(f"is not JSON: {error}")]
    documents = raw.get("documents") if isinstance(raw, dict) else None
    if not isinstance(documents, list):
        return Reading(), [ConfigError("must be a list", path="documents")]
    if len(documents) > MAX_OBJECTS:
        return Reading(), [ConfigError(f"has more than {MAX_OBJECTS} objects", path="documents")]
    objects: dict[Key, Kept] = {}
    problems: list[ConfigError] = []
    notes: list[str] = []
    for index, document in enumerate(documents):
        place = f"documents[{index}]"
        found = read_object(document, scope, index)
        problems += [problem.within(place) for problem in found.problems]
        if found.skipped:
            problems.append(ConfigError(f"is not for this pool: {found.skipped}", path=place))
        elif found.value is not None:
            key = (found.kind, found.name)
            if key in objects:
                problems.append(ConfigError(f"{found.kind} {found.name} is there twice", path=place))
            objects[key] = Kept(found.value, SOURCE, place)
            notes += [f"{SOURCE}: {note.within(place)}" for note in found.notes]
    return Reading(objects, notes=tuple(notes)), problems
