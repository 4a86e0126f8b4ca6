"""The extended endpoints file: what an entry becomes, and what is said of one that is wrong."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from dataplane.resolver import ResolveSettings
from epp.interfaces.endpoint import MAX_ENDPOINTS, EndpointSpec
from epp.plugins.endpoint_file import EndpointFile, read_endpoint_file
from epp.plugins.endpoint_list import MAX_HOST_NAMES, MAX_MODELS, MAX_RANKS

HEAD = "apiVersion: pointsman.dev/v1\nkind: EndpointList\n"
ADDRESSES = {"vllm.example": ("10.0.0.1", "fd00::1"), "other.example": ("10.0.0.1",)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A place for a file."""
    return tmp_path / "endpoints.yaml"


def read(file: Path, entries: str, head: str = HEAD) -> EndpointFile:
    """What a file with these entries lists."""
    file.write_text(f"{head}endpoints:\n{entries}")
    return read_endpoint_file(str(file))


def specs(found: EndpointFile) -> list[EndpointSpec]:
    """The endpoints, names resolved."""
    return found.endpoints(lambda name: ADDRESSES.get(name, ())).endpoints


def test_every_field_is_read(file: Path):
    found = read(
        file,
        "- name: a\n  namespace: prod\n  address: '[FD00::0001]'\n  port: '8001'\n  role: decode\n"
        "  models: [llama, qwen]\n  metrics: {port: 9400, scheme: https}\n  labels: {zone: x}\n"
        "  annotations: {note: 'long text'}\n",
    )
    assert found.problems == []
    assert specs(found) == [
        EndpointSpec(
            "a",
            "prod",
            "fd00::1",
            8001,
            {"zone": "x", "llm-d.ai/role": "decode"},
            metrics_host="[fd00::1]:9400",
            metrics_scheme="https",
            models=("llama", "qwen"),
            annotations={"note": "long text"},
        )
    ]
    assert specs(found)[0].key == "[fd00::1]:8001"


def test_a_bare_entry_is_what_it_is_in_the_plain_form(file: Path):
    entry = "- {name: a, address: 10.0.0.1}\n"
    extended = specs(read(file, entry))
    assert extended == specs(read(file, entry, head=""))
    assert extended == [EndpointSpec("a", "default", "10.0.0.1", 8000, {})]


def test_a_host_name_is_one_endpoint_per_address(file: Path):
    found = read(file, "- {name: a, address: VLLM.Example., port: 80, metrics: {port: 90}}\n")
    assert found.host_names() == {"vllm.example"}
    assert [(s.id, s.key, s.metrics_host) for s in specs(found)] == [
        ("default/a-10.0.0.1", "10.0.0.1:80", "10.0.0.1:90"),
        ("default/a-fd00::1", "[fd00::1]:80", "[fd00::1]:90"),
    ]
    assert found.endpoints(lambda _: ()).endpoints == []


@pytest.mark.parametrize(
    ("fields", "ranks"),
    [
        ("ranks: 1", [("a-rank-0", 8000, 0)]),
        ("ranks: 3", [("a-rank-0", 8000, 0), ("a-rank-1", 8001, 1), ("a-rank-2", 8002, 2)]),
        ("ports: [9000, '9010']", [("a-rank-0", 9000, 0), ("a-rank-1", 9010, 1)]),
        (
            "ranks: 3, annotations: {llm-d.ai/active-ports: '8002, 8000,x,7,8000'}",
            [("a-rank-0", 8000, 0), ("a-rank-2", 8002, 2)],
        ),
        (
            "ranks: 2, annotations: {inference.networking.k8s.io/active-ports: '8001'}",
            [("a-rank-1", 8001, 1)],
        ),
        ("ranks: 2, annotations: {llm-d.ai/active-ports: ''}", []),
        ("annotations: {llm-d.ai/active-ports: '8000'}", [("a", 8000, 0)]),
        ("annotations: {llm-d.ai/active-ports: '8001'}", []),
    ],
)
def test_ranks_are_endpoints_of_their_own(file: Path, fields: str, ranks: list[tuple[str, int, int]]):
    found = read(file, f"- {{name: a, address: 10.0.0.1, {fields}}}\n")
    assert found.problems == []
    assert [(s.name, s.port, s.rank) for s in specs(found)] == ranks


def test_each_rank_has_its_metrics_port(file: Path):
    found = read(file, "- {name: a, address: other.example, ranks: 2, metrics: {port: 9400}}\n")
    assert [(s.name, s.metrics_host) for s in specs(found)] == [
        ("a-10.0.0.1-rank-0", "10.0.0.1:9400"),
        ("a-10.0.0.1-rank-1", "10.0.0.1:9401"),
    ]


def test_of_two_names_for_one_address_the_first_counts(file: Path):
    found = read(file, "- {name: a, address: vllm.example}\n- {name: b, address: other.example}\n")
    result = found.endpoints(ADDRESSES.__getitem__)
    assert [s.name for s in result.endpoints] == ["a-10.0.0.1", "a-fd00::1"]
    assert result.problems == [
        f"{file}: endpoints[1]: left out, endpoints[0] has the same address 10.0.0.1:8000"
    ]


@pytest.mark.parametrize(
    ("entry", "problems"),
    [
        ("{}", ["endpoints[1].name: is required", "endpoints[1].address: is required"]),
        (
            "{name: x, address: '10.0.0.300', port: 0, lables: {}}",
            [
                'endpoints[1].lables: unknown field (did you mean "labels"?)',
                "endpoints[1].address: '10.0.0.300' is not an IPv4 or IPv6 address nor a host name",
                "endpoints[1].port: 0 is not a port; use 1 to 65535",
            ],
        ),
        (
            "{name: x, address: 'a b'}",
            ["endpoints[1].address: 'a b' is not an IPv4 or IPv6 address nor a host name"],
        ),
        (
            "{name: x, address: 'a:80'}",
            ["endpoints[1].address: 'a:80' is not an IPv4 or IPv6 address nor a host name"],
        ),
        ("{name: x, address: '::'}", ["endpoints[1].address: '::' is not the address of one server"]),
        ("{name: x/y, address: a}", ["endpoints[1].name: 'x/y' must be 1 to 253 printable characters"]),
        ("{name: x, address: a, role: decoed}", ["endpoints[1].role: 'decoed' is not a role (did you mean"]),
        (
            "{name: x, address: a, role: decode, labels: {llm-d.ai/role: prefill}}",
            ["endpoints[1].role: contradicts the label llm-d.ai/role; give one of them"],
        ),
        (
            "{name: x, address: a, ranks: 0}",
            ["endpoints[1].ranks: expected int >= 1"],
        ),
        (
            f"{{name: x, address: a, ranks: {MAX_RANKS + 1}}}",
            ["endpoints[1].ranks: expected int <= 64"],
        ),
        (
            "{name: x, address: a, port: 65535, ranks: 2}",
            ["endpoints[1].ranks: 2 ranks from port 65535 on go beyond port 65535"],
        ),
        (
            "{name: x, address: a, ranks: 2, ports: [1, 2]}",
            ["endpoints[1].ports: excludes ranks; give the number of ranks or the port of each"],
        ),
        ("{name: x, address: a, ports: []}", ["endpoints[1].ports: must list 1 to 64 ports"]),
        ("{name: x, address: a, ports: [1, 0]}", ["endpoints[1].ports[1]: 0 is not a port; use 1 to 65535"]),
        ("{name: x, address: a, ports: [1, 1]}", ["endpoints[1].ports: names a port twice"]),
        (
            "{name: x, address: a, metrics: {prot: 1}}",
            ['endpoints[1].metrics.prot: unknown field (did you mean "port"?)'],
        ),
        ("{name: x, address: a, metrics: {port: 70000}}", ["endpoints[1].metrics.port: 70000 is not a port"]),
        (
            "{name: x, address: a, ranks: 2, metrics: {port: 65535}}",
            ["endpoints[1].metrics.port: the metrics ports of 2 ranks from 65535 on go beyond port 65535"],
        ),
        (
            "{name: x, address: a, annotations: {k: 1}}",
            ["endpoints[1].annotations.k: 1 is not text; put it in quotes"],
        ),
        ("{name: x, address: a, models: ['']}", ["endpoints[1].models[0]: '' must be 1 to 253 printable"]),
        (
            f"{{name: x, address: a, models: {json.dumps(['m'] * (MAX_MODELS + 1))}}}",
            ["endpoints[1].models: has 65 entries, the most is 64"],
        ),
        ("{name: x, address: a, 7: b}", ["endpoints[1].7: unknown field; known here: name, namespace"]),
        ("[]", ["endpoints[1]: a list is not a mapping with name and address"]),
    ],
)
def test_a_wrong_entry_is_left_out_and_all_that_is_wrong_is_said(file: Path, entry: str, problems: list[str]):
    found = read(file, f"- {{name: a, address: 10.0.0.1}}\n- {entry}\n- {{name: b, address: 10.0.0.2}}\n")
    assert [server.spec.name for server in found.servers] == ["a", "b"]
    assert len(found.problems) == len(problems)
    for said, problem in zip(found.problems, problems, strict=True):
        assert said.startswith(f"{file}: {problem}")


def test_how_names_are_resolved_can_be_said(file: Path):
    assert read(file, " []").resolve == ResolveSettings()
    head = f"{HEAD}resolve: {{interval: 1m, timeout: 2s, family: ipv4}}\n"
    assert read(file, " []", head).resolve == ResolveSettings(interval_s=60, timeout_s=2, family="ipv4")
    found = read(file, "- {name: a, address: 10.0.0.1}", f"{HEAD}resolve: {{interval: 10ms}}\n")
    assert found.resolve == ResolveSettings()
    assert found.problems == [f"{file}: resolve.interval: 0.01s is out of range; use 1s to 1h"]
    assert [server.spec.name for server in found.servers] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: pointsman.dev/v2\nkind: EndpointList\nendpoints: []",
            "apiVersion: 'pointsman.dev/v2' is not known here; use pointsman.dev/v1",
        ),
        (
            f"{HEAD}endpoint: []",
            'endpoint: unknown field (did you mean "endpoints"?); endpoints: is required',
        ),
        (f"{HEAD}endpoints: x", "endpoints: expected a list, got text"),
        (
            "apiVersion: pointsman.dev/v1\nkind: InferencePool\nendpoints: []",
            "kind: 'InferencePool' is not known here; use EndpointList",
        ),
    ],
)
def test_a_document_that_is_something_else_is_refused(file: Path, text: str, message: str):
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_endpoint_file(str(file))
    assert str(caught.value).startswith(f"{file}: {message}")


def test_the_number_of_names_has_a_cap(file: Path):
    entries = "".join(f"- {{name: n{i}, address: n{i}.example}}\n" for i in range(MAX_HOST_NAMES + 1))
    found = read(file, f"{entries}- {{name: again, address: n0.example}}\n")
    assert len(found.host_names()) == MAX_HOST_NAMES
    assert found.servers[-1].spec.name == "again"
    assert found.problems == [
        f"{file}: endpoints[{MAX_HOST_NAMES}].address: more than {MAX_HOST_NAMES} names to resolve"
    ]


def test_the_number_of_endpoints_has_a_cap(file: Path):
    per_entry = 64
    entries = "".join(
        f"- {{name: n{i}, address: 10.0.{i // 256}.{i % 256}, ranks: {per_entry}}}\n"
        for i in range(MAX_ENDPOINTS // per_entry + 1)
    )
    result = read(file, entries).endpoints(lambda _: ())
    assert len(result.endpoints) == MAX_ENDPOINTS
    total = (MAX_ENDPOINTS // per_entry + 1) * per_entry
    assert result.problems == [f"{file}: only the first {MAX_ENDPOINTS} of {total} endpoints are used"]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("namespace", "port", "ports", "ranks", "role", "models", "metrics", "labels", "annotations")
entries = st.fixed_dictionaries(
    {"name": st.just("a") | values, "address": values | st.sampled_from(["10.0.0.1", "a.example"])},
    optional=dict.fromkeys(FIELDS, values),
)


@settings(max_examples=80)
@given(st.lists(entries | values, max_size=4), st.one_of(st.none(), values))
def test_any_document_is_a_set_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, listed: list[object], resolve: object
):
    path = tmp_path_factory.getbasetemp() / "any.json"
    document = {"apiVersion": "pointsman.dev/v1", "kind": "EndpointList", "endpoints": listed}
    path.write_text(json.dumps(document | ({} if resolve is None else {"resolve": resolve})))
    found = read_endpoint_file(str(path))
    assert len(found.servers) + len(found.problems) >= len(listed)
    found.endpoints(lambda _: ("10.0.0.9",))
