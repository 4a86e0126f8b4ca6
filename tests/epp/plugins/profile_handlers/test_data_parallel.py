"""data-parallel-profile-handler: ranks are scheduled, their server's primary port is called."""

import pytest

from dataplane.config.problems import ConfigErrors
from dataplane.errors import InternalError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Ending
from epp.interfaces.endpoint import EndpointSpec, EndpointTable
from epp.plugins.profile_handlers.data_parallel import DataParallelProfileHandler
from tests.support.pool import make_plugin, make_request
from tests.support.request_path import Rig, destination, response, set_headers

HANDLER = (
    "- {type: data-parallel-profile-handler, parameters: {primaryPort: 8000}}\n- type: active-request-scorer"
)


def rig(*ports: int, address: str = "10.0.0.1", plugins: str = HANDLER) -> Rig:
    """A request path over one server with a rank at each port."""
    table = EndpointTable(capacity=4)
    for port in ports:
        table.add(EndpointSpec(f"rank-{port}", "default", address, port))
    return Rig(plugins, table)


def test_the_primary_port_is_called_and_the_rank_named():
    _, decision = rig(8001).ask(("x-data-parallel-host-port", "6.6.6.6:6"))
    assert destination(decision) == "10.0.0.1:8000"
    assert isinstance(decision, Proceed)
    assert set_headers(decision)["x-data-parallel-host-port"] == b"10.0.0.1:8001"
    assert decision.remove_headers == []
    assert decision.metadata == {"envoy.lb": {"x-gateway-destination-endpoint": "10.0.0.1:8000"}}


def test_ipv6_hosts_keep_their_brackets():
    _, decision = rig(8001, address="fd00::1").ask()
    assert destination(decision) == "[fd00::1]:8000"
    assert isinstance(decision, Proceed)
    assert set_headers(decision)["x-data-parallel-host-port"] == b"[fd00::1]:8001"


def test_load_is_booked_on_the_rank():
    path = rig(8000, 8001)
    for _ in range(6):
        path.ask()
    assert path.table.inflight[:2].tolist() == [3.0, 3.0]


def test_the_primary_port_as_server_means_the_chosen_rank():
    path = rig(8000, 8001)
    path.ask()
    path.ask()
    first, second = (int(n) for n in path.table.inflight[:2])
    assert (first, second) == (1, 1)
    exchange, _ = path.ask()
    before = path.table.inflight[:2].tolist()
    exchange.on_response_headers(response(served="10.0.0.1:8000"))
    assert path.table.inflight[:2].tolist() == before
    exchange.on_end(Ending.NATURAL)
    assert path.table.inflight[:2].tolist() == [1.0, 1.0]


def test_another_server_takes_the_booking_over():
    path = rig(8001)
    path.table.add(EndpointSpec("other", "default", "10.0.0.2", 8000))
    path.table.inflight[1] = 5
    exchange, _ = path.ask()
    assert path.table.inflight[:2].tolist() == [1.0, 5.0]
    exchange.on_response_headers(response(served="10.0.0.2:8000"))
    assert path.table.inflight[:2].tolist() == [0.0, 6.0]


def test_only_the_first_choice_is_a_destination():
    several = HANDLER + "\n- {type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}"
    assert destination(rig(8001, 8002, plugins=several).ask()[1]) == "10.0.0.1:8000"


def test_several_profiles_are_refused():
    with pytest.raises(ConfigErrors) as caught:
        rig(8001, plugins=HANDLER + "\nschedulingProfiles: [{name: a}, {name: b}]")
    assert [str(error) for error in caught.value.errors] == [
        (
            "schedulingProfiles: data-parallel-profile-handler cannot support multiple scheduling profiles, "
            "got a, b"
        )
    ]


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_is_none_is_refused(port: int):
    with pytest.raises(ConfigErrors):
        make_plugin(DataParallelProfileHandler, None, {"primaryPort": port})


def test_no_result_is_a_defect():
    with pytest.raises(InternalError):
        make_plugin(DataParallelProfileHandler).process(make_request(), {"p": None})
