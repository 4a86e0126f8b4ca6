"""What the architecture tests look at: the tracked files and the shipped modules, parsed once per process."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("dataplane", "epp", "ipp", "simulator", "controlplane", "cli", "benchmarks")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One shipped Python file."""

    path: str
    source: str
    tree: ast.Module

    def functions(self) -> Iterator[FunctionNode]:
        """Every function and method, nested ones included."""
        return (node for node in ast.walk(self.tree) if isinstance(node, FunctionNode))


@cache
def shipped() -> tuple[Module, ...]:
    """The modules of the packages that are installed, in path order; not those that a program writes."""
    files = sorted(
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.parent.name != "migrations"
    )
    sources = [(str(path.relative_to(ROOT)), path.read_text()) for path in files]
    return tuple(Module(path, source, ast.parse(source, path)) for path, source in sources)


@cache
def repository_files() -> tuple[str, ...]:
    """Paths of the files git tracks or would track; in an export without git, all but the hidden ones."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True)
    if listed.returncode == 0:
        return tuple(sorted(path for path in listed.stdout.split("\0") if (ROOT / path).is_file()))
    everything = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return tuple(sorted(str(path) for path in everything if not path.parts[0].startswith(".")))
