"""Every package the project installs has a line: what for, instead of what, under which licence."""

import re
import tomllib

from tests.architecture.tree import ROOT

PAGE = ROOT / "docs/reference/dependencies.md"


def canonical(name: str) -> str:
    """A distribution's name as packaging tools compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    """Names of all dependencies in the project file, those of the build and of the extras included."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    requirements = [
        *document["build-system"]["requires"],
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {canonical(re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0]) for line in requirements}
    return names - {canonical(project["name"])}


def documented() -> dict[str, list[str]]:
    """The rows of the page: package -> the other cells."""
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    return {canonical(name): [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def test_every_dependency_is_documented_and_nothing_else_is():
    assert set(documented()) == declared()


def test_every_row_is_complete():
    assert {name: cells for name, cells in documented().items() if len(cells) != 3 or not all(cells)} == {}
