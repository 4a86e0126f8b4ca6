"""Files and functions stay small enough to be read at one go."""

from tests.architecture.tree import ROOT, repository_files, shipped

FILE_CEILING = 500
FUNCTION_CEILING = 60

EXEMPT: dict[str, str] = {}
"""`path` or `path::function` -> the reason why it may be longer."""


def test_no_python_file_is_longer_than_the_ceiling():
    lengths = {
        path: len((ROOT / path).read_text().splitlines())
        for path in repository_files()
        if path.endswith(".py")
    }
    assert {path: n for path, n in lengths.items() if n > FILE_CEILING and path not in EXEMPT} == {}


def test_no_shipped_function_is_longer_than_the_ceiling():
    lengths = {
        f"{module.path}::{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for module in shipped()
        for function in module.functions()
    }
    assert {name: n for name, n in lengths.items() if n > FUNCTION_CEILING and name not in EXEMPT} == {}


def test_every_exemption_has_a_reason_and_names_something_that_exists():
    known = {*repository_files(), *(f"{m.path}::{f.name}" for m in shipped() for f in m.functions())}
    assert {name for name, reason in EXEMPT.items() if name not in known or not reason.strip()} == set()
