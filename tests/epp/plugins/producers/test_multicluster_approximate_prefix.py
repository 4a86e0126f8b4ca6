"""multicluster-approx-prefix-cache-producer: the approximate index by another name."""

from dataplane.plugin.base import Stability
from epp.plugins.producers.multicluster_approximate_prefix import MulticlusterApproximatePrefixProducer
from tests.support.pool import make_table
from tests.support.request_path import Rig, destination

PLUGINS = """
- type: multicluster-approx-prefix-cache-producer
- type: multicluster-prefix-cache-scorer
  parameters: {prefixMatchInfoProducerName: multicluster-approx-prefix-cache-producer}
"""


def test_a_prompt_goes_back_to_the_cluster_that_has_it():
    rig = Rig(PLUGINS, make_table(16))
    assert [p.name.name for p in rig.graph.producers] == [  # type: ignore[attr-defined]
        "token-producer",
        "multicluster-approx-prefix-cache-producer",
    ]

    def served(number: int) -> str:
        prompt = b"a long prompt %d " % number * 50
        return destination(rig.ask(body=b'{"model": "m", "prompt": "%s"}' % prompt)[1])

    first = {number: served(number) for number in range(20)}
    assert {number: served(number) for number in range(20)} == first


def test_the_plugin_is_experimental():
    assert MulticlusterApproximatePrefixProducer.info.stability is Stability.ALPHA
