"""What the script for pages' files fetches, keeps, and leaves alone when it fails."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.tree import ROOT

LICENCE = "uplot/LICENSE"


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, looking at a checkout of its own; nothing asks a registry."""
    spec = importlib.util.spec_from_file_location("assets", ROOT / "scripts/assets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in module.MANIFESTS:
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "STATIC", tmp_path / "static")
    monkeypatch.setattr(module.digest, "__defaults__", (tmp_path,))
    return module


def serve(assets: ModuleType, monkeypatch: pytest.MonkeyPatch, text: str) -> list[Path]:
    """Let each fetch bring files with `text`; returns the folders that were fetched into."""
    fetched: list[Path] = []

    def fetch(folder: Path) -> None:
        fetched.append(folder)
        for source in assets.FILES:
            (folder / "node_modules" / source).parent.mkdir(parents=True, exist_ok=True)
            (folder / "node_modules" / source).write_text(text)

    monkeypatch.setattr(assets, "fetch", fetch)
    return fetched


def test_files_are_fetched_once_and_again_when_the_lock_file_changes(
    assets: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    fetched = serve(assets, monkeypatch, "first")
    assets.main()
    assets.main()
    assert len(fetched) == 1
    vendor = assets.STATIC / "vendor"
    assert {each.name for each in vendor.iterdir()} == {"fetched", *assets.FILES.values()}
    (assets.ROOT / "package-lock.json").write_text("{}")
    serve(assets, monkeypatch, "second")
    assets.main()
    assert {(vendor / name).read_text() for name in assets.FILES.values()} == {"second"}


def test_a_file_that_was_removed_is_fetched_again(assets: ModuleType, monkeypatch: pytest.MonkeyPatch):
    fetched = serve(assets, monkeypatch, "text")
    assets.main()
    (assets.STATIC / "vendor" / assets.FILES[LICENCE]).unlink()
    assets.main()
    assert len(fetched) == 2


def test_a_set_that_lacks_a_file_changes_nothing(assets: ModuleType, monkeypatch: pytest.MonkeyPatch):
    serve(assets, monkeypatch, "kept")
    assets.main()
    (assets.ROOT / "package-lock.json").write_text("{}")
    monkeypatch.setattr(assets, "fetch", lambda folder: None)
    with pytest.raises(FileNotFoundError):
        assets.main()
    kept = {(assets.STATIC / "vendor" / name).read_text() for name in assets.FILES.values()}
    assert kept == {"kept"}


def test_lock_file_pins_every_package_by_digest_and_names_no_place():
    lock = json.loads((ROOT / "package-lock.json").read_text())
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"]
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert {name.removeprefix("node_modules/"): each["version"] for name, each in packages.items()} == wanted
    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert {each["integrity"].partition("-")[0] for each in packages.values()} == {"sha512"}
