"""One spelling of host and port."""

import pytest

from dataplane.addresses import host_port, split_host_port


@pytest.mark.parametrize(
    ("host", "authority"),
    [
        ("10.0.0.1", "10.0.0.1:80"),
        ("fd00::1", "[fd00::1]:80"),
        ("vllm.example", "vllm.example:80"),
    ],
)
def test_a_host_with_its_port_is_spelt_and_read(host: str, authority: str):
    assert host_port(host, 80) == authority
    assert split_host_port(authority) == (host, 80)


def test_an_authority_without_a_port_is_refused():
    with pytest.raises(ValueError, match="invalid literal"):
        split_host_port("vllm.example")
