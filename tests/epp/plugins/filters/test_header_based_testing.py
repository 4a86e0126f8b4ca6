"""header-based-testing-filter: the endpoints named by the header stay, in its order."""

import numpy as np
import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.headers import Headers
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.interfaces.request import InferenceRequest, ParsedBody
from epp.plugins.filters.header_based_testing import HeaderBasedTestingFilter
from tests.support.labelled import names
from tests.support.pool import make_plugin

KEYS = [
    ("10.0.0.1", 8000),
    ("10.0.0.1", 8001),
    ("10.0.0.2", 8000),
    ("10.0.0.22", 8000),
    ("fd00::1", 8000),
    ("fd00::1", 8001),
]
"""Addresses of e0, e1, ..."""


def table() -> EndpointTable:
    made = EndpointTable(capacity=4)
    for i, (address, port) in enumerate(KEYS):
        made.add(EndpointSpec(f"e{i}", "default", address, port))
    return made


def request(*selection: str) -> InferenceRequest:
    headers = Headers.of(("Test-EPP-Endpoint-Selection", value) for value in selection)
    return InferenceRequest("r", "/v1/completions", headers, b"{}", ParsedBody(model="m"), 0.0)


def left(*selection: str) -> list[str]:
    everyone = table().all()
    return names(make_plugin(HeaderBasedTestingFilter).filter(request(*selection), everyone))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("10.0.0.2:8000", ["e2"]),
        ("10.0.0.1", ["e0", "e1"]),
        ("10.0.0.1:8001", ["e1"]),
        ("[fd00::1]:8001", ["e5"]),
        ("[fd00::1]", ["e4", "e5"]),
        ("fd00::1", ["e4", "e5"]),
    ],
)
def test_an_address_means_all_its_ports_and_a_key_means_itself(selection: str, expected: list[str]):
    assert left(selection) == expected


def test_the_order_of_the_header_is_kept_and_repeats_are_passed_over():
    assert left("10.0.0.22, 10.0.0.1:8001 ,10.0.0.1,,10.0.0.22:8000") == ["e3", "e1", "e0"]


def test_only_whole_addresses_match():
    assert left("10.0.0") == []
    assert left("10.0.0.2:80") == []
    assert left("10.0.0.1:8000:8000, 0.0.1:8000") == []


def test_what_is_not_there_is_passed_over():
    assert left("192.168.1.99, 10.0.0.2") == ["e2"]


def test_a_header_that_names_nobody_leaves_nobody():
    assert left("192.168.1.99:8000") == []
    assert left("") == []


def test_a_request_without_the_header_is_not_narrowed():
    everyone = table().all()
    assert make_plugin(HeaderBasedTestingFilter).filter(request(), everyone) is everyone


def test_endpoints_that_are_no_candidates_cannot_be_named():
    everyone = table().all()
    narrowed = everyone.where(np.array([False, True, True, False, False, False]))
    plugin = make_plugin(HeaderBasedTestingFilter)
    assert names(plugin.filter(request("10.0.0.22,10.0.0.1"), narrowed)) == ["e1"]
    assert names(plugin.filter(request("10.0.0.1"), EndpointTable().all())) == []


def test_there_are_no_parameters():
    with pytest.raises(ConfigErrors):
        make_plugin(HeaderBasedTestingFilter, None, {"headerName": "x"})
