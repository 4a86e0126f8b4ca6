"""Which scenarios and variants a run has."""

import pytest

from benchmarks.extproc_plan import ExtProcOptions, Kind, Server


def names(options: ExtProcOptions) -> dict[str, list[str]]:
    return {
        scenario.name: [variant.name for variant in options.variants(scenario)]
        for scenario in options.scenarios()
    }


def test_default_run():
    all_variants = [
        "envoy",
        "epp/full-duplex",
        "grpc-aio/full-duplex",
        "epp/request-only",
        "grpc-aio/request-only",
    ]
    assert names(ExtProcOptions()) == {
        "2048 B body": all_variants,
        "2048 B body at 500 req/s": all_variants,
        "40960 B body": all_variants,
        "stream": ["envoy", "epp/full-duplex", "grpc-aio/full-duplex"],
    }


@pytest.mark.parametrize(
    ("field", "kind"),
    [("paced_rate", Kind.PACED), ("large_body_bytes", Kind.LARGE), ("sse_chunks", Kind.STREAM)],
)
def test_zero_leaves_a_scenario_out(field: str, kind: Kind):
    kinds = [scenario.kind for scenario in ExtProcOptions(**{field: 0}).scenarios()]
    assert kind not in kinds
    assert len(kinds) == 3


def test_servers_are_chosen():
    options = ExtProcOptions(servers=(Server.GRPC_AIO,), large_body_bytes=0, paced_rate=0)
    assert names(options) == {
        "2048 B body": ["grpc-aio/full-duplex", "grpc-aio/request-only"],
        "stream": ["grpc-aio/full-duplex"],
    }
