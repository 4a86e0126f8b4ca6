"""single-profile-handler: one profile, run once."""

import numpy as np
import pytest

from dataplane.errors import ConfigError, InternalError
from epp.interfaces.scheduling import ProfileResult, SchedulingResult
from epp.plugins.profile_handlers.single import SingleProfileHandler
from epp.scheduling.profile import Profile
from tests.support.pool import make_plugin, make_request, make_table


@pytest.fixture
def handler() -> SingleProfileHandler:
    return make_plugin(SingleProfileHandler)


def test_runs_the_profile_once(handler: SingleProfileHandler):
    profile = Profile("p", [], [], None)  # type: ignore[arg-type]
    assert list(handler.profiles(make_request(), {"p": profile}, {})) == [profile]
    assert list(handler.profiles(make_request(), {"p": profile}, {"p": None})) == []


def test_its_result_is_the_primary_one(handler: SingleProfileHandler):
    table = make_table(1)
    result = ProfileResult("p", list(table.all().endpoints), table.all(), np.zeros(1), [], [])
    assert handler.process(make_request(), {"p": result}) == SchedulingResult({"p": result}, "p")


def test_no_result_is_a_defect(handler: SingleProfileHandler):
    with pytest.raises(InternalError):
        handler.process(make_request(), {"p": None})


def test_several_profiles_are_refused_at_start(handler: SingleProfileHandler):
    handler.check_profiles(["p"])
    with pytest.raises(ConfigError) as caught:
        handler.check_profiles(["p", "q"])
    assert str(caught.value) == (
        "single-profile-handler cannot support multiple scheduling profiles, got p, q"
    )
