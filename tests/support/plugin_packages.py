"""Packages with plugins, installed into a folder: modules, and the metadata that pip would write."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path


def install(
    folder: Path,
    name: str,
    version: str,
    plugins: Mapping[str, str],
    modules: Mapping[str, str] | None = None,
) -> None:
    """Write the modules (name -> source) and the metadata with the plugins (type -> ``module:Class``)."""
    for module, source in (modules or {}).items():
        (folder / f"{module}.py").write_text(source)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "\n".join(f"{kind} = {location}" for kind, location in plugins.items())
    (info / "entry_points.txt").write_text(f"[pointsman.epp.plugins]\n{lines}\n")


def install_project(project: Path, folder: Path) -> None:
    """Install a project of single modules by what its pyproject.toml says."""
    document = tomllib.loads((project / "pyproject.toml").read_text())
    for module in document["tool"]["setuptools"]["py-modules"]:
        shutil.copy(project / f"{module}.py", folder)
    about = document["project"]
    install(folder, about["name"], about["version"], about["entry-points"]["pointsman.epp.plugins"])
