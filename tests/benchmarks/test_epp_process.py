"""What the picker is started with."""

from pathlib import Path

from benchmarks.epp_process import default_config, endpoints_document


def test_config_is_the_built_in_one_with_endpoints_from_a_file():
    config = default_config(Path("/tmp/e.yaml"))
    (profile,) = config["schedulingProfiles"]
    assert {one["pluginRef"]: one["weight"] for one in profile["plugins"]} == {
        "queue-scorer": 2,
        "kv-cache-utilization-scorer": 2,
        "prefix-cache-scorer": 3,
    }
    assert config["dataLayer"]["discovery"] == {"pluginRef": "file-discovery"}
    assert config["plugins"][-1]["parameters"] == {"path": "/tmp/e.yaml"}


def test_endpoints_file_lists_addresses_and_ports_as_text():
    assert endpoints_document(["127.0.0.1:8001"]) == {
        "endpoints": [{"name": "replica-0", "address": "127.0.0.1", "port": "8001"}]
    }
