"""The repository works on any machine and ships nothing unfinished."""

import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, repository_files, shipped

TEXT_LIMIT_BYTES = 1_000_000

ONE_MACHINE = re.compile(r"(?<![\w.<{])/(?:work|root|home/\w+|Users/\w+)/")
REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.org|yarnpkg\.com|proxy\.golang\.org|crates\.io", re.IGNORECASE
)
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")


def text_files() -> dict[str, str]:
    """The tracked text files, this module and lock files apart."""
    paths = [path for path in repository_files() if ROOT / path != Path(__file__)]
    contents = {path: (ROOT / path).read_bytes() for path in paths if not path.endswith(".lock")}
    return {
        path: data.decode(errors="replace")
        for path, data in contents.items()
        if b"\0" not in data and len(data) <= TEXT_LIMIT_BYTES
    }


def places(pattern: re.Pattern[str], files: dict[str, str]) -> list[str]:
    """`path:line` of every line the pattern is found in."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_tracked_file_names_a_path_of_one_machine():
    here = re.compile(f"{re.escape(str(ROOT))}/|{re.escape(str(Path.home()))}/")
    assert places(ONE_MACHINE, text_files()) == []
    assert places(here, text_files()) == []


def test_no_tracked_file_names_a_package_registry():
    assert places(REGISTRY_HOST, text_files()) == []


def test_no_shipped_module_is_unfinished():
    assert places(UNFINISHED, {module.path: module.source for module in shipped()}) == []


@pytest.mark.parametrize("script", ["scripts/up", "scripts/test", ".ci/run"])
def test_commands_are_executable(script: str):
    assert (ROOT / script).stat().st_mode & 0o111 == 0o111


def test_ci_runs_the_test_command():
    assert "scripts/test" in (ROOT / ".ci/run").read_text()
