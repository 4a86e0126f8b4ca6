"""The utilization of the busiest GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.interfaces.attributes import GPU_UTILIZATION
from epp.interfaces.data_layer import Extractor, Measurements
from epp.plugins.extractors.dcgm import MAX_GPUS, DcgmExtractor
from tests.support.pool import make_plugin, make_table

KEY = GPU_UTILIZATION.by("dcgm-extractor")
HEAD = b"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"


def read(page: bytes) -> Measurements:
    found: Measurements = make_plugin(DcgmExtractor).reader(make_table(1).all().endpoint(0))(page)
    return found


def gpus(*values: object) -> bytes:
    lines = (f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i}",modelName="H100"}} {v}\n' for i, v in enumerate(values))
    return HEAD + "".join(lines).encode()


@pytest.mark.parametrize(
    ("page", "share"),
    [
        (gpus(30, 75, 12), 0.75),
        (gpus(0), 0.0),
        (gpus("1e2"), 1.0),
        (gpus("2.5e-1 1700000000"), 0.0025),
        (b"DCGM_FI_DEV_GPU_UTIL 50\r\n", 0.5),
        (gpus(40, 9223372036854775794, "NaN", "-1", "1.2.3"), 0.4),
        (b'DCGM_FI_DEV_GPU_UTIL{note="} 99"} 7\n', 0.07),
        (b"DCGM_FI_DEV_GPU_UTIL_TOTAL 99\nDCGM_FI_DEV_GPU_UTIL 5", 0.05),
    ],
)
def test_the_highest_percentage_is_the_share(page: bytes, share: float):
    assert read(page) == Measurements(attributes={KEY: share})


@pytest.mark.parametrize(
    "page", [b"", HEAD, gpus("NaN"), gpus(101), b"DCGM_FI_DEV_GPU_UTIL\n50\n", gpus("5%")]
)
def test_without_a_percentage_the_attribute_is_taken_away(page: bytes):
    assert read(page) == Measurements(
        attributes={KEY: None}, missing={"GPUUtilization/dcgm-extractor": "DCGM_FI_DEV_GPU_UTIL"}
    )


def test_a_bounded_number_of_gpus_is_looked_at():
    assert read(gpus(*[10] * MAX_GPUS, 99)) == Measurements(attributes={KEY: 0.1})


@given(st.binary(max_size=200).map(lambda tail: b"DCGM_FI_DEV_GPU_UTIL{" + tail))
def test_any_bytes_are_read_without_an_error(page: bytes):
    attributes = read(page).attributes
    assert attributes is not None
    value = attributes[KEY]
    assert value is None or 0 <= value <= 1


def test_it_is_an_extractor_of_prometheus_texts():
    plugin = make_plugin(DcgmExtractor, name="gpus")
    assert isinstance(plugin, Extractor)
    assert (plugin.expects, list(plugin.produces)) == ("prometheus-text", [GPU_UTILIZATION.by("gpus")])
