"""The files beside the configuration that ``pointsman epp validate`` accepts: objects, and endpoints.

What a file is, its documents say by ``apiVersion`` and ``kind``; llm-d's plain endpoints file has neither and
is known by its list. Nothing is resolved, connected to or compared with a pool: objects of every pool count.
"""

from __future__ import annotations

import os
from collections import Counter

import msgspec

from dataplane.config.documents import split_documents
from dataplane.config.epp_checks import KIND
from dataplane.errors import ConfigError
from epp.objects.documents import Scope, is_object
from epp.objects.files import ObjectFiles, Reading, parse
from epp.plugins.endpoint_file import read_endpoint_file
from epp.plugins.endpoint_list import is_endpoint_list


class Verdict(msgspec.Struct):
    """What is to be said of one file."""

    errors: list[str]
    warnings: list[str]
    holds: str
    """What it holds, in a few words."""


def judge(name: str, text: bytes) -> Verdict | None:
    """The verdict on a file of objects or endpoints; None when it is, or means to be, a configuration."""
    try:
        documents = split_documents(text.decode())
    except UnicodeDecodeError:
        return None
    found = [parse(document)[0] for document in documents]
    objects = any(is_object(raw) for raw in found)
    if not objects and any(isinstance(raw, dict) and raw.get("kind") == KIND for raw in found):
        return None  # several of them as well, which their reader then refuses
    if len(documents) > 1 or objects:
        return judge_objects(name)
    (raw,) = found or [None]
    plain = isinstance(raw, dict) and "endpoints" in raw and "kind" not in raw and "plugins" not in raw
    if plain or (isinstance(raw, dict) and is_endpoint_list(raw)):
        return _judge_endpoints(name)
    return None


def judge_objects(path: str) -> Verdict:
    """The verdict on a file of objects, or on a folder of such files."""
    reading = ObjectFiles(path, Scope()).read(Reading())
    kinds = Counter(kind for kind, _ in reading.objects)
    holds = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no objects"
    return Verdict(_below(path, reading.problems), _below(path, reading.notes), holds)


def _judge_endpoints(name: str) -> Verdict:
    try:
        file = read_endpoint_file(name)
    except ConfigError as error:
        return Verdict(_below(name, [str(error)]), [], "")
    listed = file.endpoints(lambda _: ())
    holds = f"{len(listed.endpoints)} endpoints with addresses, {len(file.host_names())} host names"
    return Verdict(_below(name, listed.problems), [], holds)


def _below(path: str, said: tuple[str, ...] | list[str]) -> list[str]:
    """Messages without the path that stands in front of them anyway."""
    return [each.removeprefix(f"{path}: ").removeprefix(f"{path}{os.sep}") for each in said]
