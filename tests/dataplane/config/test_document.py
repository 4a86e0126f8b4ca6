"""Documents: what YAML and JSON text becomes, and how mistakes are located."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.config import document
from dataplane.config.document import MAX_DOCUMENT_BYTES, read_document
from dataplane.errors import ConfigError


def read(text: str | bytes) -> tuple[Any, list[str]]:
    """Data and problems of a text."""
    problems: list[ConfigError] = []
    return read_document(text, problems), [str(problem) for problem in problems]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing here\n", "---\n"])
def test_a_text_without_content_is_nothing(text: str):
    assert read(text) == (None, [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("0x10", 16),
        ("2.5", 2.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("010", "010"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("yes", True),
        ("Off", False),
        ("~", None),
        ("null", None),
        ("'7'", "7"),
        ("!!str 7", "7"),
    ],
)
def test_reads_yaml_scalars_without_surprises(text: str, value: object):
    assert read(f"a: {text}") == ({"a": value}, [])


def test_reads_json_with_tabs_which_yaml_refuses():
    assert read('{\n\t"a": [1, {"b": null}]\n}') == ({"a": [1, {"b": None}]}, [])


def test_reads_flow_yaml_that_is_no_json():
    assert read("{a: 1, b: [x, y]}") == ({"a": 1, "b": ["x", "y"]}, [])


@pytest.mark.parametrize("text", ['{"a": [1e3]}', "a: [1e3]", "# written by some editor\na: [1e3]"])
def test_a_byte_order_mark_means_nothing(text: str):
    problems: list[ConfigError] = []
    assert read_document(f"\ufeff{text}".encode(), problems) == {"a": [1000.0]}
    assert problems == []


def test_reads_bytes():
    assert read("a: ü".encode()) == ({"a": "ü"}, [])


@pytest.mark.parametrize(
    "text", ["a: 1\n---\n", "---\n# nothing\n---\na: 1\n...\n", "---\n--- {a: 1}\n---\n..."]
)
def test_documents_that_are_empty_do_not_count(text: str):
    assert read(text) == ({"a": 1}, [])


def test_lines_are_those_of_the_file_when_an_empty_document_comes_first():
    assert read("# licence\n---\n---\na: 1\na: 2\n")[1] == ["a: the key occurs twice on line 5; remove one"]


def test_merges_keys_of_an_anchor_under_the_ones_written_out():
    text = "base: &base {p: 1, q: 2}\nother: {<<: *base, q: 3}\nmany: {<<: [{p: 5}, *base]}"
    assert read(text) == (
        {"base": {"p": 1, "q": 2}, "other": {"p": 1, "q": 3}, "many": {"p": 5, "q": 2}},
        [],
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1,\n", "line 2, column 1: expected the node content, but found '<stream end>'"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
        ("a: 1\n b: 2", "line 2, column 3: mapping values are not allowed here"),
        ('{"a" 1}', "line 1, column 6: Expecting ':' delimiter; the document is neither JSON nor YAML"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ('{"a": ' + "9" * 5000 + "}", "has an integer of more than 4300 digits"),
        (
            "a: 1\n---\nb: 2",
            "line 2, column 1: expected a single document in the stream, but found another document",
        ),
        ("a:\n  \x07", "line 2: character U+0007 is not allowed in YAML"),
        (b"a: \xff", "not UTF-8 text: byte 3 cannot be decoded"),
        ("[" * 2000, "nested deeper than 64 levels"),
        ('{"a":' * 2000, "nested deeper than 64 levels"),
        ("a: &x [*x]", "nested deeper than 64 levels"),
        ("x" * (MAX_DOCUMENT_BYTES + 1), f"the document is larger than {MAX_DOCUMENT_BYTES} bytes"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_unreadable_text_is_refused_with_its_place(text: str | bytes, problem: str):
    assert read(text) == (None, [problem])


def test_repeated_keys_are_all_named_with_path_and_line():
    data, problems = read("a: 1\nb:\n  - c: 2\n    c: 3\na: 4")
    assert problems == [
        "b[0].c: the key occurs twice on line 4; remove one",
        "a: the key occurs twice on line 5; remove one",
    ]
    assert data == {"a": 4, "b": [{"c": 3}]}


def test_repeated_keys_of_json_are_named():
    assert read('{"a": {"b": 1, "b": 2}}')[1] == ["a.b: the key occurs twice; remove one"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: !!python/name:os.system x", "a: line 1: the tag tag:yaml.org,2002:python/name:os.system is not"),
        ("a: !!binary eA==", "a: line 1: the tag tag:yaml.org,2002:binary is not supported"),
        ("a: !!set {x}", "a: line 1: the tag tag:yaml.org,2002:set is not supported"),
        ("a: !!int x", "a: line 1: 'x' cannot be read as int"),
        ("a: !!float x", "a: line 1: 'x' cannot be read as float"),
        ("a: !!bool maybe", "a: line 1: 'maybe' cannot be read as bool"),
        ("? [k]\n: 1", "line 1: a key must be text"),
    ],
)
def test_tags_and_keys_beyond_plain_data_are_refused(text: str, problem: str):
    _, problems = read(text)
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_aliases_that_multiply_are_stopped():
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert read("\n".join(lines))[1] == ["more than 100000 values, aliases expanded"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(min_size=1, max_size=6), JSON, max_size=5))
def test_json_and_yaml_of_the_same_data_read_the_same(data: dict[str, Any]):
    assert read(json.dumps(data)) == (data or {}, [])
    plain = {f"k{i}": value for i, value in enumerate(data.values())}
    text = yaml.safe_dump(plain, default_style='"')
    assert read(text) == (plain or {}, [])


@given(st.text(max_size=40))
def test_any_text_gives_data_or_a_problem_and_no_exception(text: str):
    data, problems = read(text)
    assert data is None or not isinstance(data, bytes)
    assert all(isinstance(problem, str) for problem in problems)


yaml_texts = st.lists(
    st.sampled_from(
        [
            "a: ",
            "b:\n  ",
            "- ",
            "{",
            "}",
            "[",
            "]",
            ", ",
            "1e3",
            "yes",
            "~",
            "0x1f",
            "'x'",
            '"\\n"',
            "|\n  t\n",
            "&x ",
            "*x",
            "\n",
            "# c\n",
            "é",
            "2020-01-01",
            "!!str 5",
            "<<: ",
            "? ",
        ]
    ),
    max_size=12,
).map("".join)


@settings(max_examples=300)
@given(yaml_texts)
def test_the_fast_reader_finds_what_the_slow_one_finds(text: str):
    fast = read(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_FastLoader", None)
        slow = read(text)
    if not slow[1]:
        assert repr(fast) == repr(slow)


@pytest.mark.parametrize(
    "quoted", ['{"a": {"\\ud800": 1}}', '{"a": ["\\udfff"]}', 'a: "\\ud800"', '"\\udc01": 1']
)
def test_half_characters_are_refused_wherever_they_are(quoted: str):
    _, problems = read(quoted)
    assert len(problems) == 1
    assert "is half a character; write the whole" in problems[0]
    assert problems[0].isascii()


def test_whole_characters_may_be_written_in_halves():
    assert read('{"a": "\\ud83d\\ude80"}') == ({"a": "\U0001f680"}, [])


def test_the_number_of_values_may_be_capped_otherwise():
    problems: list[ConfigError] = []
    read_document("[1, 2, 3]", problems, max_values=3)
    assert [str(problem) for problem in problems] == ["more than 3 values, aliases expanded"]
    problems.clear()
    assert read_document("[1, 2]", problems, max_values=3) == [1, 2]
    assert problems == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (str((1 << 63) - 1), (1 << 63) - 1),
        (str(-(1 << 63)), -(1 << 63)),
        (str(1 << 63), 2.0**63),
        ("-1" + "0" * 30, -1e30),
        ("1" + "0" * 400, float("inf")),
        ("-1" + "0" * 400, float("-inf")),
    ],
)
def test_integers_beyond_64_bits_are_floats(text: str, value: float):
    for written in (f"a: {text}", f'{{"a": {text}}}'):
        data, problems = read(written)
        assert (data["a"], type(data["a"]), problems) == (value, type(value), [])


def test_a_large_text_with_a_mistake_is_not_read_by_the_slow_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    compose = yaml.compose

    def noted(text: str, Loader: Any) -> Any:
        asked.append((len(text), Loader.__name__))
        return compose(text, Loader=Loader)

    monkeypatch.setattr(yaml, "compose", noted)
    for text in ("[a" + ",a" * 10, "[a" + ",a" * 40_000):
        problems: list[ConfigError] = []
        assert read_document(text, problems) is None
        assert ": line " in f": {problems[0]}"
    assert asked == [(22, "_FastLoader"), (22, "_Loader"), (80_002, "_FastLoader")]
