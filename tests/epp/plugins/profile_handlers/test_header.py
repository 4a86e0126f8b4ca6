"""header-profile-handler: the caller chooses the profile."""

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import InternalError, ResourceExhaustedError
from dataplane.plugin.base import Stability
from epp.plugins.profile_handlers.header import HeaderProfileHandler
from tests.support.labelled import labelled_table
from tests.support.pool import make_plugin, make_request
from tests.support.request_path import Rig, destination

PLUGINS = """
- {type: header-profile-handler, parameters: {headerName: X-Kind, defaultProfile: small}}
- {type: by-label, name: is-small, parameters: {label: size, validValues: [small]}}
- {type: by-label, name: is-large, parameters: {label: size, validValues: [large]}}
schedulingProfiles:
- {name: small, plugins: [{pluginRef: is-small}]}
- {name: large, plugins: [{pluginRef: is-large}]}
"""


@pytest.fixture
def rig() -> Rig:
    return Rig(PLUGINS, labelled_table([{"size": "small"}, {"size": "large"}]))


def test_it_is_experimental():
    assert HeaderProfileHandler.info.stability is Stability.ALPHA


def test_the_header_names_the_profile(rig: Rig):
    assert destination(rig.ask(("x-kind", "large"))[1]) == "10.0.0.2:8000"
    assert destination(rig.ask(("x-kind", "small"))[1]) == "10.0.0.1:8000"


def test_without_or_with_an_empty_header_the_default_counts(rig: Rig):
    assert destination(rig.ask()[1]) == "10.0.0.1:8000"
    assert destination(rig.ask(("x-kind", ""))[1]) == "10.0.0.1:8000"


def test_an_unknown_name_is_429_and_speaks_of_no_saturation(rig: Rig):
    with pytest.raises(ResourceExhaustedError) as caught:
        rig.ask(("x-kind", "q" * 100))
    assert caught.value.status == 429
    assert caught.value.message == f"header x-kind names the unknown scheduling profile '{'q' * 64}'"
    assert caught.value.dropped_reason == ""


def test_a_default_that_does_not_exist_is_refused():
    with pytest.raises(ConfigErrors) as caught:
        Rig("- {type: header-profile-handler}\nschedulingProfiles: [{name: a}, {name: b}]")
    assert [str(error) for error in caught.value.errors] == [
        (
            "schedulingProfiles: header-profile-handler 'header-profile-handler' needs its defaultProfile "
            "'decode', got a, b"
        )
    ]


def test_no_result_is_a_defect():
    with pytest.raises(InternalError):
        make_plugin(HeaderProfileHandler).process(make_request(), {"p": None})
