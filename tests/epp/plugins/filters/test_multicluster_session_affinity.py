"""multicluster-session-affinity-filter: the filter of sessions by another name."""

from dataplane.extproc.exchange import Ending
from dataplane.plugin.base import Stability
from epp.plugins.filters.multicluster_session_affinity import MulticlusterSessionAffinityFilter
from tests.support.pool import make_table
from tests.support.request_path import Rig, destination, response, set_headers

PLUGINS = """
- {type: multicluster-session-affinity-filter, parameters: {encodedEndpointHeaderConfig: {header: x-cluster}}}
- type: random-picker
schedulingProfiles:
- {name: default, plugins: [{pluginRef: multicluster-session-affinity-filter}]}
"""


def test_a_session_stays_on_its_cluster():
    rig = Rig(PLUGINS, make_table(8))
    exchange, decision = rig.ask()
    first = destination(decision)
    token = set_headers(exchange.on_response_headers(response()))["x-cluster"].decode()
    exchange.on_end(Ending.NATURAL)
    assert {destination(rig.ask(("x-cluster", token))[1]) for _ in range(20)} == {first}
    assert len({destination(rig.ask()[1]) for _ in range(40)}) > 1


def test_the_plugin_is_experimental():
    assert MulticlusterSessionAffinityFilter.info.stability is Stability.ALPHA
