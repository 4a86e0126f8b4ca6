"""What one installation exports another one can apply, every kind there is, through the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from controlplane.core.kinds import KINDS
from tests.support.controlplane import EXAMPLES
from tests.support.controlplane_command import Command, serving

pytestmark = pytest.mark.integration


def test_an_export_creates_everything_elsewhere_and_changes_nothing_after(tmp_path: Path) -> None:
    kinds = [service.kind for service in KINDS.all()]
    assert list(EXAMPLES) == kinds
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with serving(Command(tmp_path / "here"), tmp_path / "here" / "log") as here:
        here.says("apply", "-", text=yaml.safe_dump_all(EXAMPLES.values()))
        exported = here.says("export")
        assert list(yaml.safe_load_all(exported)) == list(EXAMPLES.values())
    names = [f"{kind} {EXAMPLES[kind]['metadata']['name']}" for kind in kinds]
    with serving(Command(tmp_path / "there"), tmp_path / "there" / "log") as there:
        created = [f"+ {name}: create" for name in names]
        assert there.says("apply", "--dry-run", "-", text=exported).splitlines() == created
        assert there.says("export") == ""
        assert there.says("apply", "-", text=exported).splitlines() == created
        unchanged = [f"  {name}: unchanged" for name in names]
        assert there.says("apply", "--dry-run", "-", text=exported).splitlines() == unchanged
        assert there.says("export") == exported
