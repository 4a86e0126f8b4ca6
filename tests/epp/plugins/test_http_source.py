"""How often sources poll, and which settings they share."""

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from epp.plugins.http_source import HttpSource, checked_port
from epp.plugins.sources.model_server_metrics import ModelServerMetricsSource
from epp.plugins.sources.models import ModelsSource
from tests.support.pool import make_plugin


@pytest.mark.parametrize(
    ("source", "interval", "polled_s", "warnings"),
    [
        (ModelServerMetricsSource, "0s", 0.0, []),
        (ModelServerMetricsSource, "10ms", 0.01, []),
        (ModelsSource, "0s", 1.0, []),
        (ModelsSource, "1m", 60.0, []),
        (ModelsSource, "50ms", 1.0, ["interval 50ms is shorter than makes sense, 1 s is used instead"]),
    ],
)
def test_a_source_polls_no_oftener_than_makes_sense(
    source: type[HttpSource], interval: str, polled_s: float, warnings: list[str]
):
    plugin = make_plugin(source, None, {"interval": interval})
    assert (plugin.interval_s, plugin.warnings) == (polled_s, warnings)


def test_every_source_refuses_wrong_settings_at_their_place():
    for params, path in (
        ({"path": "models"}, "path"),
        ({"interval": "-1s"}, "interval"),
        ({"caCertPath": "/nowhere"}, "caCertPath"),
        ({"scheme": "https", "clientCertPath": "/nowhere"}, "clientKeyPath"),
        ({"scheme": "ftp"}, "parameters.scheme"),
    ):
        with pytest.raises((ConfigError, ConfigErrors)) as caught:
            make_plugin(ModelsSource, None, params)
        assert path in str(caught.value)


def test_a_port_is_zero_only_where_that_stands_for_something():
    assert [checked_port(0, "the endpoint's"), checked_port(65535, "")] == [0, 65535]
    with pytest.raises(ConfigError, match=r"port: 0 is not a port; use 1 to 65535$"):
        checked_port(0, "")
    with pytest.raises(
        ConfigError, match=r"port: -1 is not a port; use 1 to 65535, or 0 for the endpoint's$"
    ):
        checked_port(-1, "the endpoint's")
