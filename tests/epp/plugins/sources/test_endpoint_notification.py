"""Configurations may list the events of discovery as a source."""

import pytest

from dataplane.config.problems import ConfigErrors
from epp.graph import load_graph
from epp.interfaces.data_layer import DataSource, NotificationSource
from epp.interfaces.endpoint import EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.sources.endpoint_notification import EndpointNotificationSource
from tests.support.pool import make_plugin

TEXT = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: endpoint-notification-source
- type: topology-extractor
- type: inflight-load-producer
- type: active-request-scorer
dataLayer:
  sources:
  - pluginRef: endpoint-notification-source
    extractors: [{pluginRef: topology-extractor}, {pluginRef: inflight-load-producer}]
"""


def test_it_is_a_source_of_notifications_and_polls_nothing():
    plugin = make_plugin(EndpointNotificationSource)
    assert isinstance(plugin, NotificationSource)
    assert not isinstance(plugin, DataSource)


def test_those_listed_under_it_hear_and_nobody_is_polled():
    graph = load_graph(TEXT, Handle(EndpointTable()), allow_experimental=True)
    assert graph.sources == ()
    assert [extractor.name.name for extractor in graph.endpoint_extractors] == ["topology-extractor"]


def test_one_that_does_without_is_named():
    text = TEXT.replace("{pluginRef: topology-extractor}", "{pluginRef: active-request-scorer}")
    graph = load_graph(text, Handle(EndpointTable()), allow_experimental=True)
    assert (
        "dataLayer.sources[0].extractors[0].pluginRef: the plugin 'active-request-scorer' does without "
        "endpoint notifications"
    ) in graph.warnings


def test_one_that_is_not_configured_is_refused():
    text = TEXT.replace("{pluginRef: topology-extractor}", "{pluginRef: nobody}")
    with pytest.raises(ConfigErrors) as caught:
        load_graph(text, Handle(EndpointTable()), allow_experimental=True)
    assert [str(error) for error in caught.value.errors] == [
        "dataLayer.sources[0].extractors[0].pluginRef: references undefined plugin 'nobody'"
    ]
