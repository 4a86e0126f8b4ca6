"""A value is read as the class as which it is left, or the configuration is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main
from dataplane.config.problems import ConfigErrors
from epp.graph import load_graph
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from tests.support.plugin_packages import install
from tests.support.plugins import TEST_REGISTRY

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
ALGORITHM = "algorithm: {type: linear_lower_is_better, normalization: {adaptiveRange: {}}}"
PACKAGE = """
from dataplane.plugin.base import DataKey, PluginInfo

MINE = DataKey("PrefixCacheMatchInfo", value=dict)

class Match:
    info = PluginInfo("their-match")
    def __init__(self, name, params, handle):
        self.name = name
        self.produces = (MINE.by(name.name),)
    def produce(self, request, candidates):
        request.put(self.produces[0], {})
"""


def problems(text: str) -> list[str]:
    """What is wrong with a document below a correct head; Alpha plugins are allowed."""
    with pytest.raises(ConfigErrors) as caught:
        load_graph(HEAD + text, Handle(EndpointTable()), registry=TEST_REGISTRY, allow_experimental=True)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize("producer", ["", ", producer: topology-extractor"], ids=["default", "named"])
@pytest.mark.parametrize("there", ["", "{type: topology-extractor}, "], ids=["created", "configured"])
def test_what_is_no_number_is_not_read_as_one(there: str, producer: str):
    scorer = (
        f"{{type: endpoint-attribute-scorer, parameters: {{attributeKey: Topology{producer}, {ALGORITHM}}}}}"
    )
    assert problems(f"plugins: [{there}{scorer}]") == [
        (
            "plugins: 'endpoint-attribute-scorer' reads Topology as float, but 'topology-extractor' leaves "
            "it as Topology; name a producer in the parameters of 'endpoint-attribute-scorer' whose Topology "
            "is float, or remove one of the two"
        )
    ]


def test_what_is_no_text_names_no_session():
    source = "{attribute: PrefixCacheMatchInfo}"
    parameters = f"{{strategy: session_id, sessionIdConfig: {{sources: [{source}]}}}}"
    reader = f"{{type: session-affinity-scorer, parameters: {parameters}}}"
    assert problems(f"plugins: [{{type: prefix-cache-scorer}}, {reader}]") == [
        (
            "plugins: 'session-affinity-scorer' reads PrefixCacheMatchInfo as str, but "
            "'approx-prefix-cache-producer' leaves it as PrefixMatch; name a producer in the parameters of "
            "'session-affinity-scorer' whose PrefixCacheMatchInfo is str, or remove one of the two"
        )
    ]


def test_an_installed_package_that_leaves_another_type_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    install(tmp_path, "their-package", "1", {"their-match": "their_match:Match"}, {"their_match": PACKAGE})
    monkeypatch.syspath_prepend(str(tmp_path))
    config = tmp_path / "config.yaml"
    named = "{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: their-match}}"
    config.write_text(f"{HEAD}plugins: [{{type: their-match}}, {named}]")
    assert main(["epp", "validate", str(config)]) == 1
    assert capsys.readouterr().out == (
        f"{config}: error: plugins: 'prefix-cache-scorer' reads PrefixCacheMatchInfo as PrefixMatch, but "
        "'their-match' leaves it as dict; name a producer in the parameters of 'prefix-cache-scorer' whose "
        "PrefixCacheMatchInfo is PrefixMatch, or remove one of the two\n"
    )
