"""Strict decoding: every mistake is reported, with the place it was made at."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.config.decode import Duration, Quantity, decode_struct
from dataplane.errors import ConfigError


class Leaf(msgspec.Struct, rename="camel", frozen=True):
    port_number: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 80
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Tree(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    leaf: Leaf = msgspec.field(default_factory=Leaf)
    leaves: list[Leaf] = msgspec.field(default_factory=list)
    by_name: dict[str, Leaf] = msgspec.field(default_factory=dict)
    ratio: float | None = None
    ttl: Duration | None = None
    size: Quantity = Quantity(7)
    extra: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise ConfigError("is taken", path="name")
        if self.name == "odd":
            raise ValueError("odd things")


class Choosy(msgspec.Struct, frozen=True):
    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        if (self.left is None) == (self.right is None):
            raise ConfigError("give one of left and right")


class Needy(msgspec.Struct, frozen=True):
    path: str
    depth: int = 1


def read(raw: Any, kind: type[Any] = Tree) -> tuple[Any, list[str]]:
    """The struct and the problems of plain data."""
    problems: list[ConfigError] = []
    return decode_struct(raw, kind, "doc", problems), [str(problem) for problem in problems]


def test_a_struct_that_refuses_its_own_defaults_is_a_problem_and_no_value():
    assert read({"left": 1}, Choosy) == (Choosy(1), [])
    assert read({}, Choosy) == (None, ["doc: give one of left and right"])
    assert read({"left": "x"}, Choosy)[0] is None


def test_reads_nested_values():
    raw = {
        "name": "x",
        "leaf": {"portNumber": 8080, "labels": {"a": "b"}},
        "leaves": [{}, {"portNumber": 1}],
        "byName": {"y": {"portNumber": 2}},
        "ratio": 1,
        "ttl": "1m30s",
        "size": "1Ki",
        "extra": {"any": [1, None]},
    }
    assert read(raw) == (
        Tree(
            name="x",
            leaf=Leaf(port_number=8080, labels={"a": "b"}),
            leaves=[Leaf(), Leaf(port_number=1)],
            by_name={"y": Leaf(port_number=2)},
            ratio=1.0,
            ttl=Duration(90.0),
            size=Quantity(1024),
            extra={"any": [1, None]},
        ),
        [],
    )


def test_absent_and_null_sections_take_their_defaults():
    assert read(None) == (Tree(), [])
    assert read({"ratio": None, "ttl": None, "leaf": None}) == (Tree(), [])


def test_a_field_that_is_null_is_absent_whatever_its_type():
    nothing = dict.fromkeys(("name", "leaf", "leaves", "byName", "ratio", "ttl", "size", "extra"))
    assert read(nothing) == (Tree(), [])
    assert read({"leaves": [{"portNumber": None, "labels": None}]}) == (Tree(leaves=[Leaf()]), [])
    assert read({"path": "x", "depth": None}, Needy) == (Needy("x"), [])
    assert read({"path": None}, Needy) == (None, ["doc.path: expected str, got null"])


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_are_finite(number: float):
    assert read({"ratio": number}) == (Tree(), ["doc.ratio: must be a finite number"])


def test_all_mistakes_are_reported_with_their_paths():
    raw = {
        "nmae": "x",
        "leaf": {"portNumber": 0, "colour": "red"},
        "leaves": [{"portNumber": "80"}, 5, {"labels": {"a": 1}}],
        "byName": {"y": {"port": 1}},
        "ratio": "half",
        "ttl": 5,
        "size": -1,
    }
    tree, problems = read(raw)
    assert problems == [
        'doc.nmae: unknown field (did you mean "name"?)',
        "doc.leaf.portNumber: expected int >= 1",
        "doc.leaf.colour: unknown field; known here: portNumber, labels",
        "doc.leaves[0].portNumber: expected int, got str",
        "doc.leaves[1]: expected a mapping, got a number",
        "doc.leaves[2].labels.a: expected str, got int",
        "doc.byName.y.port: unknown field; known here: portNumber, labels",
        "doc.ratio: expected float, got str",
        "doc.ttl: '5' is not a duration; write a number and a unit, such as 50ms, 2s or 1m30s",
        "doc.size: must not be negative",
    ]
    assert tree == Tree(leaves=[Leaf(), Leaf(), Leaf()], by_name={"y": Leaf()})


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ([], "doc: expected a mapping, got a list"),
        ("text", "doc: expected a mapping, got text"),
        ({"leaves": {}}, "doc.leaves: expected a list, got a mapping"),
        ({"byName": []}, "doc.byName: expected a mapping, got a list"),
        ({"ttl": True}, "doc.ttl: expected a duration such as 250ms, got a boolean"),
        ({"size": []}, "doc.size: expected a quantity such as 500M, got a list"),
        ({"name": True}, "doc.name: expected str, got bool"),
        ({"name": "forbidden"}, "doc.name: is taken"),
        ({"name": "odd"}, "doc: odd things"),
    ],
)
def test_a_wrong_shape_leaves_the_default(raw: object, problem: str):
    assert read(raw) == (Tree(), [problem])


def test_quantities_may_be_plain_numbers():
    assert read({"size": 1000})[0].size == 1000
    assert read({"size": 1e3})[0].size == 1000


def test_a_missing_required_field_leaves_no_struct():
    assert read({"depth": 2}, Needy) == (None, ["doc.path: is required"])
    assert read(None, Needy) == (None, ["doc.path: is required"])
    assert read({"path": 5}, Needy) == (None, ["doc.path: expected str, got int"])
    assert read({"path": "/x"}, Needy) == (Needy("/x"), [])


class Choice(msgspec.Struct, rename="camel", frozen=True):
    mode: Literal["sum", "max-role"] = "sum"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("max_role", "must be one of sum, max-role; got 'max_role' (did you mean \"max-role\"?)"),
        ("", "must be one of sum, max-role; got ''"),
        (5, "must be one of sum, max-role; got a number"),
        (["sum"], "must be one of sum, max-role; got a list"),
    ],
)
def test_a_word_that_is_not_allowed_is_told_which_are(raw: object, problem: str):
    assert read({"mode": raw}, Choice) == (Choice(), [f"doc.mode: {problem}"])
    assert read({"mode": "max-role"}, Choice) == (Choice("max-role"), [])


class Strict(msgspec.Struct, rename="camel", frozen=True):
    header: str = ""
    cookie: str = ""

    def __post_init__(self) -> None:
        if not (self.header or self.cookie):
            raise ConfigError("give one of header and cookie")


class Outer(msgspec.Struct, rename="camel", frozen=True):
    strict: Strict | None = None
    always: Strict = msgspec.field(default_factory=Strict)


def test_defaults_that_do_not_pass_their_own_checks_are_reported():
    refused = "give one of header and cookie"
    assert read(None, Strict) == (None, [f"doc: {refused}"])
    assert read("text", Strict) == (None, ["doc: expected a mapping, got text"])
    assert read({"header": 5}, Strict) == (None, ["doc.header: expected str, got int", f"doc: {refused}"])
    assert read({"strict": {}, "always": {"header": "a"}}, Outer) == (
        Outer(always=Strict("a")),
        [f"doc.strict: {refused}"],
    )
    assert read({}, Outer) == (None, [f"doc: {refused}"])


UNITS = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=4))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]):
    text = "".join(f"{number}{unit}" for number, unit in parts)
    tree, problems = read({"ttl": text})
    assert problems == []
    exact = sum(number * UNITS[unit] for number, unit in parts)
    assert tree.ttl * 1e9 == pytest.approx(exact, rel=1e-12)


@given(st.integers(0, 1 << 40), st.sampled_from([("", 1), ("k", 1000), ("Ki", 1024), ("M", 10**6)]))
def test_a_quantity_is_its_number_times_its_suffix(number: int, suffix: tuple[str, int]):
    assert read({"size": f"{number}{suffix[0]}"}) == (Tree(size=Quantity(number * suffix[1])), [])


class Grove(msgspec.Struct, frozen=True):
    trees: list[str]

    def __post_init__(self) -> None:
        if not self.trees:
            raise ConfigError("is empty", path="trees")


def test_a_list_of_mistakes_is_not_called_empty_as_well():
    problems: list[ConfigError] = []
    assert decode_struct({"trees": [1, True]}, Grove, "", problems) is None
    assert [problem.path for problem in problems] == ["trees[0]", "trees[1]"]
    problems.clear()
    assert decode_struct({"trees": []}, Grove, "", problems) is None
    assert [str(problem) for problem in problems] == ["trees: is empty"]
