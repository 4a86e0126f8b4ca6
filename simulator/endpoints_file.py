"""The document that a picker's file discovery reads: which endpoints there are, written in one piece."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from simulator.replica import Replica

MAX_LABEL = 63
"""Longest label value that Kubernetes allows."""


def label(text: str) -> str:
    """Return `text` as a label value or name: lower case, digits, dashes and dots."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower())[:MAX_LABEL].strip("-.") or "model"


def document(replicas: Sequence[Replica], model: str) -> dict[str, list[dict[str, object]]]:
    """Return the document for `replicas`, which all serve `model`."""
    labels = {
        "llm-d.ai/engine-type": "vllm",
        "llm-d.ai/inference-serving": "true",
        "llm-d.ai/model": label(model),
    }
    return {
        "endpoints": [
            {
                "name": replica.name,
                "namespace": replica.namespace,
                "address": replica.address,
                "port": str(replica.port),
                "labels": dict(labels),
            }
            for replica in replicas
        ]
    }


def write(path: Path, content: dict[str, list[dict[str, object]]]) -> None:
    """Replace `path` by `content` as YAML: a reader sees the old file or the new one. May raise OSError."""
    text = yaml.safe_dump(content, sort_keys=False)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
