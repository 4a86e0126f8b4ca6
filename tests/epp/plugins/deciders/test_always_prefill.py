"""always-disagg-pd-decider: yes to everything."""

from epp.interfaces.scheduling import StageDecider
from epp.plugins.deciders.always_prefill import AlwaysPrefillDecider
from tests.support.pool import make_plugin, make_request, make_table


def test_says_yes_with_and_without_an_endpoint():
    decider = make_plugin(AlwaysPrefillDecider)
    assert isinstance(decider, StageDecider)
    assert decider.wants_stage(make_request(), None) is True
    assert decider.wants_stage(make_request(), make_table(1).all().endpoint(0)) is True
