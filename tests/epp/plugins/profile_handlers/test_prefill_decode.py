"""pd-profile-handler: decode, and prefill when the decider says so; deprecated."""

from collections.abc import Sequence

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ResourceExhaustedError
from dataplane.headers import DATA_PARALLEL, PREFILLER
from epp.plugins.profile_handlers.prefill_decode import PrefillDecodeProfileHandler
from tests.support.labelled import labelled_table
from tests.support.pool import make_plugin
from tests.support.request_path import Rig, destination, set_headers

REST = """
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 1}}
- type: always-disagg-pd-decider
- type: decode-filter
- type: prefill-filter
- type: max-score-picker
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}]}
- {name: prefill, plugins: [{pluginRef: prefill-filter}]}
"""


def rig(parameters: str = "{}", roles: Sequence[str] = ("decode", "prefill")) -> Rig:
    handler = f"- {{type: pd-profile-handler, parameters: {parameters}}}"
    return Rig(handler + REST, labelled_table([{"llm-d.ai/role": role} for role in roles]))


def test_the_prefill_endpoint_is_told_when_the_decider_says_so():
    path = rig()
    _, decision = path.ask()
    assert destination(decision) == "10.0.0.1:8000"
    assert decision is not None
    assert set_headers(decision)[PREFILLER] == b"10.0.0.2:8000"
    assert path.table.inflight[:2].tolist() == [1.0, 1.0]
    newest = next(iter(path.decisions.recent()))
    assert newest["decision"] == "prefill-decode"
    never = Rig(
        ("- type: pd-profile-handler" + REST).replace("nonCachedTokens: 1", "nonCachedTokens: 9"),
        labelled_table([{"llm-d.ai/role": role} for role in ("decode", "prefill")]),
    )
    _, decision = never.ask()
    assert decision is not None
    assert PREFILLER not in set_headers(decision)


def test_a_request_goes_on_without_prefill():
    path = rig(roles=("decode",))
    assert destination(path.ask()[1]) == "10.0.0.1:8000"
    assert next(iter(path.decisions.recent()))["leftOut"] == ["prefill"]


def test_a_failed_decode_is_429():
    with pytest.raises(ResourceExhaustedError, match="failed to find available decode workers"):
        rig(roles=("prefill",)).ask()


def test_ranks_are_reached_through_the_primary_port():
    _, decision = rig("{primaryPort: 8200}").ask()
    assert destination(decision) == "10.0.0.1:8200"
    assert decision is not None
    told = set_headers(decision)
    assert (told[DATA_PARALLEL], told[PREFILLER]) == (b"10.0.0.1:8000", b"10.0.0.2:8000")


def test_the_deprecation_names_what_replaces_it():
    warnings = rig("{prefixPluginType: x, prefixPluginName: y}").graph.warnings
    at = "plugin 'pd-profile-handler': "
    assert {
        f"{at}pd-profile-handler is deprecated; use disagg-profile-handler",
        f"{at}prefixPluginType has no effect; remove it",
        f"{at}prefixPluginName has no effect; remove it",
    } <= set(warnings)


def test_the_named_producer_must_be_there():
    with pytest.raises(ConfigErrors, match="PrefixCacheMatchInfo of 'mine', which is not configured"):
        rig("{prefixMatchInfoProducerName: mine}")


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ("{deciderPluginName: nobody}", "deciderPluginName: references undefined plugin 'nobody'"),
        (
            "{deciderPluginName: decode-filter}",
            "deciderPluginName: the plugin 'decode-filter' is not a decider",
        ),
        ("{prefillProfile: decode}", "prefillProfile: must be another profile than that of decode"),
        ("{primaryPort: 70000}", "primaryPort: expected int <= 65535"),
    ],
)
def test_mistakes_are_refused_at_their_place(parameters: str, problem: str):
    with pytest.raises(ConfigErrors) as caught:
        rig(parameters)
    assert [str(error) for error in caught.value.errors] == [f"plugins[0].parameters.{problem}"]


def test_a_missing_decode_profile_is_refused():
    decider = {"prefix-based-pd-decider": Willing()}
    handler = make_plugin(PrefillDecodeProfileHandler, plugins=decider)
    with pytest.raises(ValueError, match=r"needs the decode profile 'decode', got prefill"):
        handler.check_profiles(["prefill"])


class Willing:
    """A decider."""

    def wants_stage(self, request: object, endpoint: object) -> bool:
        return True
