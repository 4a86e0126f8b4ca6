"""Endpoint files: good entries count, bad ones are named, changes are seen however they are made."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from dataplane.plugin.base import TypedName
from dataplane.plugin.state import MAX_DUMPED
from epp.interfaces.data_layer import DiscoveredSet, EndpointDiscovery
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.discovery.file import FileDiscovery
from epp.plugins.endpoint_fields import MAX_LABELS, MAX_NAME
from epp.plugins.endpoint_file import MAX_FILE_BYTES, EndpointFile, read_endpoint_file
from epp.plugins.file_endpoints import EndpointsInFileParams

GOOD = "endpoints:\n- {name: a, address: 10.0.0.1}\n- {name: b, address: 10.0.0.2}\n"


TOO_MANY_LABELS = json.dumps({str(i): "v" for i in range(MAX_LABELS + 1)})


def discovery(path: Path, *, watch: bool = True) -> FileDiscovery:
    """A plugin for this file."""
    params = msgspec.convert({"path": str(path), "watchFile": watch}, EndpointsInFileParams)
    return FileDiscovery(TypedName("file-discovery", "file"), params, Handle(EndpointTable()))


def read_endpoints(path: str) -> DiscoveredSet:
    """The endpoints in a file without host names."""
    return read_endpoint_file(path).endpoints(lambda _: ())


def settled(plugin: FileDiscovery) -> DiscoveredSet | None:
    """What polling finds once the file has looked the same twice."""
    found = [plugin.poll() for _ in range(3)]
    reported = [each for each in found if each is not None]
    assert len(reported) <= 1
    return reported[0] if reported else None


def names(found: DiscoveredSet | None) -> list[str] | None:
    """Names of the endpoints."""
    return None if found is None else [spec.name for spec in found.endpoints]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two endpoints."""
    path = tmp_path / "endpoints.yaml"
    path.write_text(GOOD)
    return path


def test_every_field_is_read(file: Path):
    file.write_text(
        'endpoints:\n- name: a\n  namespace: prod\n  address: 10.0.0.1\n  port: "8001"\n'
        "  labels: {llm-d.ai/engine-type: sglang}\n- {name: b, address: 'FD00::0001', port: 8002}\n"
    )
    found = read_endpoints(str(file))
    assert found.problems == []
    assert found.endpoints == [
        EndpointSpec("a", "prod", "10.0.0.1", 8001, {"llm-d.ai/engine-type": "sglang"}),
        EndpointSpec("b", "default", "fd00::1", 8002, {}),
    ]
    assert found.endpoints[1].key == "[fd00::1]:8002"


def test_json_is_read_as_well(file: Path):
    file.write_text("\t" + json.dumps({"endpoints": [{"name": "a", "address": "10.0.0.1"}]}, indent="\t"))
    assert read_endpoints(str(file)).endpoints == [EndpointSpec("a", "default", "10.0.0.1", 8000, {})]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{address: 10.0.0.9}", "endpoints[1].name: is missing"),
        ("{name: 7, address: 10.0.0.9}", "endpoints[1].name: 7 is not text; put it in quotes"),
        ("{name: '', address: 10.0.0.9}", "endpoints[1].name: '' must be 1 to 253 printable characters"),
        ("{name: a/b, address: 10.0.0.9}", "endpoints[1].name: 'a/b' must be 1 to 253 printable characters"),
        ('{name: "a\\n", address: 10.0.0.9}', "endpoints[1].name: 'a\\n' must be 1 to 253 printable"),
        (
            f"{{name: {'x' * (MAX_NAME + 1)}, address: 10.0.0.9}}",
            f"endpoints[1].name: '{'x' * 60}...' must be 1 to",
        ),
        ("{name: x, namespace: [], address: 10.0.0.9}", "endpoints[1].namespace: a list is not text"),
        ("{name: x}", "endpoints[1].address: is missing; give the IP address of the model server"),
        (
            "{name: x, address: host.example}",
            "endpoints[1].address: 'host.example' is not an IPv4 or IPv6 address",
        ),
        (
            "{name: x, address: 10.0.0.300}",
            "endpoints[1].address: '10.0.0.300' is not an IPv4 or IPv6 address",
        ),
        ("{name: x, address: '10.0.0.9:80'}", "endpoints[1].address: '10.0.0.9:80' is not an IPv4 or IPv6"),
        (
            "{name: x, address: '[fd00::1]'}",
            "endpoints[1].address: '[fd00::1]' is not an IPv4 or IPv6 address",
        ),
        ("{name: x, address: 'fe80::1%eth0'}", "endpoints[1].address: 'fe80::1%eth0' is not an IPv4 or IPv6"),
        ("{name: x, address: 10}", "endpoints[1].address: 10 is not an IPv4 or IPv6 address"),
        ("{name: x, address: 0.0.0.0}", "endpoints[1].address: '0.0.0.0' is not the address of one server"),
        ("{name: x, address: 'ff02::1'}", "endpoints[1].address: 'ff02::1' is not the address of one server"),
        ("{name: x, address: 10.0.0.9, port: 0}", "endpoints[1].port: 0 is not a port; use 1 to 65535"),
        ("{name: x, address: 10.0.0.9, port: 65536}", "endpoints[1].port: 65536 is not a port"),
        ("{name: x, address: 10.0.0.9, port: http}", "endpoints[1].port: 'http' is not a port"),
        ("{name: x, address: 10.0.0.9, port: yes}", "endpoints[1].port: true is not a port"),
        ("{name: x, address: 10.0.0.9, port: 80.5}", "endpoints[1].port: 80.5 is not a port"),
        (
            f"{{name: x, address: 10.0.0.9, port: 0x{'f' * 6000}}}",
            "endpoints[1].port: inf is not a port",
        ),
        (
            "{name: x, address: 10.0.0.9, labels: []}",
            "endpoints[1].labels: a list is not a mapping of text to text",
        ),
        (
            "{name: x, address: 10.0.0.9, labels: {rank: 0}}",
            "endpoints[1].labels.rank: 0 is not text; put it in",
        ),
        (
            f"{{name: x, address: 10.0.0.9, labels: {TOO_MANY_LABELS}}}",
            "endpoints[1].labels: has 65 entries, the most is 64",
        ),
        ("just text", "endpoints[1]: 'just text' is not a mapping with name, address and port"),
        ("", "endpoints[1]: an empty value is not a mapping with name, address and port"),
    ],
)
def test_a_bad_entry_is_left_out_and_named_and_the_rest_applies(file: Path, entry: str, problem: str):
    file.write_text(
        f"endpoints:\n- {{name: a, address: 10.0.0.1}}\n- {entry}\n- {{name: b, address: 10.0.0.2}}\n"
    )
    found = discovery(file).load()
    assert names(found) == ["a", "b"]
    (said,) = found.problems
    assert said.startswith(f"{file}: {problem}")


def test_unknown_fields_are_said_and_the_entry_counts(file: Path):
    file.write_text("endpoint: []\nendpoints:\n- {name: a, address: 10.0.0.1, lables: {x: y}}\n")
    found = read_endpoints(str(file))
    assert names(found) == ["a"]
    assert found.problems == [
        f"{file}: unknown field 'endpoint' (did you mean \"endpoints\"?) is ignored",
        f"{file}: endpoints[0]: unknown field 'lables' (did you mean \"labels\"?) is ignored",
    ]


def test_of_duplicates_the_first_counts_and_the_others_are_said(file: Path):
    file.write_text(
        "endpoints:\n- {name: a, address: 10.0.0.1}\n- {name: b, address: 10.0.0.2}\n"
        "- {name: a, address: 10.0.0.3}\n- {name: c, address: 10.0.0.2}\n"
        "- {name: a, namespace: x, address: 10.0.0.4}\n"
    )
    found = read_endpoints(str(file))
    assert [(spec.id, spec.address) for spec in found.endpoints] == [
        ("default/a", "10.0.0.1"),
        ("default/b", "10.0.0.2"),
        ("x/a", "10.0.0.4"),
    ]
    assert found.problems == [
        f"{file}: endpoints[2]: left out, endpoints[0] has the same endpoint default/a",
        f"{file}: endpoints[3]: left out, endpoints[1] has the same address 10.0.0.2:8000",
    ]


def test_an_entry_left_out_costs_no_other_one_its_place(file: Path):
    file.write_text(GOOD + "- {name: a, address: 10.0.0.3}\n- {name: d, address: 10.0.0.3}\n")
    found = read_endpoints(str(file))
    assert [(spec.name, spec.address) for spec in found.endpoints] == [
        ("a", "10.0.0.1"),
        ("b", "10.0.0.2"),
        ("d", "10.0.0.3"),
    ]
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a mapping with the list `endpoints`"),
        (b"- a\n", "must be a mapping with the list `endpoints`"),
        (b"pods: []\n", "endpoints is missing; write `endpoints:` and one entry per model server"),
        (b"endpoints: {}\n", "endpoints must be a list; write `endpoints:`"),
        (b"endpoints:\n", "endpoints must be a list; write `endpoints:`"),
        (b"endpoints: [\n", "cannot be read: line 2, column 1: "),
        (b'{"endpoints": [}', "cannot be read: line 1, column 16: Expecting value; the document is neither"),
        (
            b"endpoints: !!python/object/apply:os.system [ls]",
            "cannot be read: endpoints: line 1: the tag tag:yaml.org,2002:python/object/apply:os.system",
        ),
        (
            b"endpoints: [!!bool maybe]",
            "cannot be read: endpoints[0]: line 1: 'maybe' cannot be read as bool",
        ),
        (b"endpoints: [!!int '']", "cannot be read: endpoints[0]: line 1: '' cannot be read as int"),
        (b"endpoints: [!!float '']", "cannot be read: endpoints[0]: line 1: '' cannot be read as float"),
        (b"endpoints: [!!timestamp now]", "cannot be read: endpoints[0]: line 1: the tag tag:yaml.org,2002"),
        (
            b"endpoints: [{name: a, name: b}]",
            "cannot be read: endpoints[0].name: the key occurs twice on line",
        ),
        (b'{"endpoints": [{"name": "\\ud800"}]}', "cannot be read: endpoints[0].name: U+D800 is half a char"),
        (b"[" * 100_000, "cannot be read: "),
        (b"{" * 100_000, "cannot be read: "),
        (b"endpoints: " + b"9" * 5000, "cannot be read: "),
        (b"endpoints: [\xff]", "is not UTF-8 text (byte 12)"),
        (b"#" * (MAX_FILE_BYTES + 1), "is larger than 1048576 bytes"),
        (b"endpoint: []\nendpoints: []\n", "no usable endpoint: {file}: unknown field 'endpoint'"),
        (b"endpoints: [{name: a}]\n", "no usable endpoint: {file}: endpoints[0].address: is missing"),
    ],
)
def test_a_file_with_nothing_usable_is_an_error_at_the_start(file: Path, content: bytes, message: str):
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        discovery(file).load()
    assert str(caught.value).startswith(f"{file}: {message.replace('{file}', str(file))}")


@pytest.mark.parametrize("head", ["", "apiVersion: pointsman.dev/v1\nkind: EndpointList\n"])
def test_an_empty_list_is_a_pool_that_fills_later(file: Path, head: str):
    file.write_text(f"{head}endpoints: []\n")
    plugin = discovery(file)
    assert plugin.load() == DiscoveredSet([], [])
    file.write_text(f"{head}{GOOD}")
    assert names(settled(plugin)) == ["a", "b"]


def test_an_empty_list_that_is_not_watched_is_an_error_with_a_way_out(file: Path):
    file.write_text("endpoints: []\n")
    with pytest.raises(ConfigError, match="the list is empty, and the file is not watched; list an endpoint"):
        discovery(file, watch=False).load()


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no\.yaml: cannot be read \(No such file or directory\)"):
        discovery(tmp_path / "no.yaml").load()


def test_an_empty_path_is_an_error():
    with pytest.raises(ConfigError, match="path: is empty; name the file that lists the endpoints"):
        FileDiscovery(TypedName("f", "f"), EndpointsInFileParams(path=""), Handle(EndpointTable()))


@pytest.mark.parametrize("bomb", ["[*a{before}, *a{before}]", "{{<<: [*a{before}, *a{before}], k{i}: 1}}"])
def test_aliases_that_would_explode_do_not(file: Path, bomb: str):
    lines = [f"a{i}: &a{i} {bomb.format(before=i - 1, i=i)}\n" for i in range(1, 60)]
    file.write_text(f"a0: &a0 {{x: y}}\n{''.join(lines)}endpoints:\n- *a59\n" + GOOD[11:])
    with pytest.raises(ConfigError, match="cannot be read: more than 1000000 values, aliases expanded"):
        read_endpoints(str(file))


def test_a_file_at_the_size_cap_is_read(file: Path):
    file.write_text(GOOD + "#" * (MAX_FILE_BYTES - len(GOOD)))
    assert names(read_endpoints(str(file))) == ["a", "b"]


def test_without_watching_changes_are_not_looked_for(file: Path):
    plugin = discovery(file, watch=False)
    plugin.load()
    file.write_text("endpoints: [{name: c, address: 10.0.0.3}]")
    assert settled(plugin) is None


def test_an_unchanged_file_is_not_read_again(file: Path):
    plugin = discovery(file)
    plugin.load()
    assert settled(plugin) is None


def write_in_place(file: Path, text: str) -> None:
    """Change the file itself."""
    file.write_text(text)


def rename_over(file: Path, text: str) -> None:
    """Replace the file as editors do."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.replace(file)


@pytest.mark.parametrize("change", [write_in_place, rename_over])
def test_a_change_is_seen_once(file: Path, change: object):
    plugin = discovery(file)
    plugin.load()
    change(file, "endpoints: [{name: c, address: 10.0.0.3}]")
    assert names(settled(plugin)) == ["c"]
    assert settled(plugin) is None


def test_a_swapped_symbolic_link_is_seen_though_size_and_time_are_the_same(tmp_path: Path):
    for folder, name in (("v1", "a"), ("v2", "c")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "endpoints.yaml").write_text(f"endpoints: [{{name: {name}, address: 10.0.0.1}}]")
        os.utime(tmp_path / folder / "endpoints.yaml", ns=(0, 0))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "endpoints.yaml").symlink_to("..data/endpoints.yaml")
    plugin = discovery(tmp_path / "endpoints.yaml")
    assert names(plugin.load()) == ["a"]
    (tmp_path / "..tmp").symlink_to("v2")
    (tmp_path / "..tmp").replace(tmp_path / "..data")
    assert names(settled(plugin)) == ["c"]


def test_a_file_still_being_written_is_left_alone(file: Path):
    plugin = discovery(file)
    plugin.load()
    for size in range(1, 5):
        file.write_text(GOOD[: -size * 3])
        assert plugin.poll() is None
    file.write_text("endpoints: [{name: c, address: 10.0.0.3}]")
    assert names(settled(plugin)) == ["c"]


def test_a_change_during_the_first_reading_is_seen_afterwards(file: Path, monkeypatch: pytest.MonkeyPatch):
    plugin = discovery(file)

    def read_then_change(path: str, **how: bool) -> EndpointFile:
        found = read_endpoint_file(path, **how)
        file.write_text("endpoints: [{name: c, address: 10.0.0.3}]")
        return found

    monkeypatch.setattr("epp.plugins.file_endpoints.read_endpoint_file", read_then_change)
    assert names(plugin.load()) == ["a", "b"]
    monkeypatch.undo()
    assert names(settled(plugin)) == ["c"]


def test_an_emptied_list_empties_the_set(file: Path):
    plugin = discovery(file)
    plugin.load()
    file.write_text("endpoints: []")
    assert settled(plugin) == DiscoveredSet([], [])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("endpoints: [", "cannot be read: line 1"),
        ("endpoints: [{name: a}]", "endpoints[0].address: is missing"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_reload_with_nothing_usable_keeps_the_old_set_and_says_so(
    file: Path, content: str | None, problem: str
):
    plugin = discovery(file)
    plugin.load()
    file.unlink() if content is None else file.write_text(content)
    found = settled(plugin)
    assert names(found) == ["a", "b"]
    assert problem in found.problems[0]
    assert found.problems[1] == f"{file}: nothing of it is applied, the 2 endpoints there are stay"
    assert settled(plugin) is None
    file.write_text("endpoints: [{name: c, address: 10.0.0.3}]")
    assert names(settled(plugin)) == ["c"]


def test_it_is_an_endpoint_discovery(file: Path):
    assert isinstance(discovery(file), EndpointDiscovery)


def test_its_state_is_the_file_and_a_bounded_list(file: Path):
    plugin = discovery(file)
    plugin.load()
    assert plugin.dump_state() == {
        "path": str(file),
        "watchFile": True,
        "totalEndpoints": 2,
        "maxEndpoints": MAX_DUMPED,
        "truncated": False,
        "leftOut": 0,
        "endpoints": [
            {"id": "default/a", "address": "10.0.0.1:8000"},
            {"id": "default/b", "address": "10.0.0.2:8000"},
        ],
    }
    entries = ", ".join(f"{{name: e{i}, address: 10.0.1.{i}}}" for i in range(MAX_DUMPED + 1))
    file.write_text(f"endpoints: [{entries}]")
    settled(plugin)
    shown = plugin.dump_state()
    assert (shown["totalEndpoints"], shown["truncated"], shown["leftOut"], len(shown["endpoints"])) == (
        MAX_DUMPED + 1,
        True,
        1,
        MAX_DUMPED,
    )


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
entries = st.fixed_dictionaries(
    {}, optional={"name": values, "address": values | st.just("10.0.0.1"), "port": values, "labels": values}
)


@settings(max_examples=60)
@given(st.lists(entries | values, max_size=4))
def test_any_document_is_a_set_or_an_error(tmp_path_factory: pytest.TempPathFactory, listed: list[object]):
    path = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}.json"
    path.write_text(json.dumps({"endpoints": listed}))
    found = read_endpoints(str(path))
    assert len(found.endpoints) + len(found.problems) >= len(listed)
