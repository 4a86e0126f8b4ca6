"""What a fresh database begins with: the documents of a folder, applied as anybody would apply them.

Keys of tenants are drawn here, so they are no documents that can be applied; those in the folder are made one
by one, and shown once. Afterwards the folder is not looked at again: what is in the database counts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cli.machine.api import Api, ApiError, refusal
from dataplane.processes.child import StartError

KEY = "VirtualKey"


def read(folder: Path) -> list[dict[str, Any]]:
    """All documents, file by file. `StartError` when one cannot be read."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found += [each for each in yaml.safe_load_all(path.read_text()) if each is not None]
        except (OSError, yaml.YAMLError) as error:
            raise StartError(f"{path}: {error}") from None
    return found


async def apply(api: Api, documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Apply everything, and return the new keys by name. `StartError` when the control plane refuses."""
    keys = [document for document in documents if document.get("kind") == KEY]
    others = [document for document in documents if document.get("kind") != KEY]
    made: dict[str, str] = {}
    try:
        await api.call("POST", "apply", others)
        for document in keys:
            reply = await api.ask("POST", "virtualkeys", document)
            if reply.status == 409:  # made by a first start that did not come to its end
                continue
            if reply.status >= 400:
                raise ApiError(refusal(reply), reply.status)
            made[document["metadata"]["name"]] = reply.body["status"]["key"]
    except ApiError as error:
        raise StartError(f"the examples cannot be applied: {error}") from None
    return made


async def read_and_apply(api: Api, folder: Path) -> dict[str, str]:
    """Both, without holding the loop while files are read."""
    return await apply(api, await asyncio.to_thread(read, folder))
