"""The rules of gateways, and what their Envoys are sent."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from google.protobuf import json_format

from controlplane.core import changes
from controlplane.core.documents import apply
from controlplane.core.errors import ConflictError, InvalidError
from controlplane.core.kinds import KINDS
from controlplane.fleet import status
from controlplane.fleet.endpoints import EndpointReports, seen_in
from controlplane.xds import resources
from controlplane.xds.envoy.encode import MESSAGES
from controlplane.xds.nodes import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, Audience, NodeKind
from dataplane.xds.codec import unwrapped
from dataplane.xds.messages import STATIC_GATEWAY
from tests.support.certificates import write_certificate
from tests.support.controlplane import ADMIN, CREDENTIAL, GATEWAY, OPERATOR, POOL, REWRITE
from tests.support.controlplane import ENDPOINTS as LIST

pytestmark = pytest.mark.django_db
PUBLIC = Audience(NodeKind.GATEWAY, "public")


def gateway(**spec: Any) -> dict[str, Any]:
    return {**GATEWAY, "spec": {"listener": {"port": 8080}, **spec}}


def pool(name: str = "pool", *, models: list[str] | None = None, **spec: Any) -> dict[str, Any]:
    document = copy.deepcopy(POOL)
    document["metadata"]["name"] = name
    document["spec"] |= {"models": ["llama"] if models is None else models, **spec}
    return document


def sent(type_url: str, name: str) -> dict[str, Any]:
    """A resource of the gateway, as plain data."""
    value = built()[type_url][name].value
    found: dict[str, Any] = json_format.MessageToDict(MESSAGES[type_url].FromString(value))
    return found


def built() -> Any:
    return resources.build({PUBLIC})[1][PUBLIC]


def routed() -> dict[str, list[str]]:
    """Pool -> models, by the routes."""
    found: dict[str, list[str]] = {}
    for route in sent(ROUTES, "public")["virtualHosts"][0]["routes"]:
        for match in route["match"].get("dynamicMetadata", []):
            if "route" in route and match["path"] == [{"key": "model"}]:
                values = match["value"].get("orMatch", {}).get("valueMatchers", [match["value"]])
                found[route["name"]] = [each["stringMatch"]["exact"] for each in values]
    return found


def addresses(pool: str = "pool") -> list[tuple[str, int]]:
    parts = [
        each["endpoint"]["address"]["socketAddress"]
        for each in sent(ENDPOINTS, f"pool-{pool}").get("endpoints", [{}])[0].get("lbEndpoints", [])
    ]
    return [(part["address"], part["portValue"]) for part in parts]


def test_pools_are_routed_to_by_their_models_and_the_names_that_rewrites_know() -> None:
    apply(ADMIN, [gateway(), pool(), REWRITE, pool("other", models=["chat", "qwen"])])
    assert routed() == {"pool": ["llama", "chat"], "other": ["qwen"]}


def test_a_pool_without_models_is_asked_for_what_its_simulated_servers_serve() -> None:
    driver = {"type": "local", "simulated": {"models": ["gemma"]}}
    document = pool(driver=driver)
    del document["spec"]["models"]
    apply(ADMIN, [gateway(), document])
    assert routed() == {"pool": ["gemma"]}


def test_only_pools_with_the_selected_labels_are_served() -> None:
    chosen = pool("chosen")
    chosen["metadata"]["labels"] = {"exposed": "yes"}
    apply(ADMIN, [gateway(poolSelector={"matchLabels": {"exposed": "yes"}}), pool(), chosen])
    assert set(built()[CLUSTER]) == {"pool-chosen", "epp-chosen"}


def test_endpoints_are_those_of_lists_and_those_that_pickers_report() -> None:
    apply(ADMIN, [gateway(), pool(), LIST])
    assert addresses() == [("10.0.0.1", 8000), ("10.0.0.2", 8000), ("10.0.0.2", 8001)]
    seen = seen_in({"name": "c", "address": "10.0.0.3:8000", "fresh": True, "listens": True})
    before = changes.current()
    reports = EndpointReports()
    reports.write({"pool": [seen]}, ["pool"])
    assert (addresses()[-1], changes.current()) == (("10.0.0.3", 8000), before + 1)
    busy = seen_in({"name": "c", "address": "10.0.0.3:8000", "fresh": True, "waiting": 3.0})
    reports.write({"pool": [busy]}, ["pool"])
    assert changes.current() == before + 1
    reports.write({"pool": []}, ["pool"])
    assert (("10.0.0.3", 8000) not in addresses(), changes.current()) == (True, before + 2)


def test_a_picker_of_ours_is_where_its_driver_says_and_another_where_its_pool_says() -> None:
    ref = {"name": "epp.example.internal", "port": {"number": 9002}, "failureMode": "FailOpen"}
    external = pool("external", endpointPickerRef=ref)
    del external["spec"]["driver"]
    apply(ADMIN, [gateway(externalPickers={"tls": True, "healthPort": 9004}), pool(), external])
    assert sent(CLUSTER, "epp-pool")["loadAssignment"].get("endpoints", []) == []
    status.report("r", {"pool": {"ports": {"grpc": 7001, "health": 7002, "metrics": 7003}}})
    ours, theirs = sent(CLUSTER, "epp-pool"), sent(CLUSTER, "epp-external")
    assert ours["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"] == {
        "address": {"socketAddress": {"address": "127.0.0.1", "portValue": 7001}},
        "healthCheckConfig": {"portValue": 7002},
    }
    assert (ours.get("type", "STATIC"), theirs["type"]) == ("STATIC", "STRICT_DNS")
    assert theirs["transportSocket"]["name"] == "tls"


def test_a_gateway_with_tls_is_sent_its_certificate_and_shows_it_to_nobody_else(tmp_path: Any) -> None:
    cert, key = write_certificate(tmp_path)
    credential = copy.deepcopy(CREDENTIAL)
    credential["metadata"]["name"] = "public-certificate"
    credential["spec"] = {"type": "TLSCertificate", "secret": cert.read_text() + key.read_text()}
    tls = {"credentialRef": {"name": "public-certificate"}}
    apply(ADMIN, [gateway(tls=tls), credential])
    (name,) = built()[SECRET]
    assert name == "public-certificate"
    socket = sent(LISTENER, "public")["filterChains"][0]["transportSocket"]["typedConfig"]
    (followed,) = socket["commonTlsContext"]["tlsCertificateSdsSecretConfigs"]
    assert followed["name"] == "public-certificate"
    for kind in ("Gateway", "ProviderCredential"):
        service = KINDS.of(kind)
        assert service is not None
        assert "PRIVATE" not in json.dumps([service.document(row) for row in service.rows(OPERATOR)])
    with pytest.raises(ConflictError):
        KINDS.of("ProviderCredential").delete(ADMIN, "public-certificate")  # type: ignore[union-attr]


def test_a_certificate_without_its_own_key_and_credentials_of_other_types_are_refused(tmp_path: Any) -> None:
    cert, _ = write_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = write_certificate(tmp_path / "other")
    credential = copy.deepcopy(CREDENTIAL)
    credential["spec"] = {"type": "TLSCertificate", "secret": cert.read_text() + other.read_text()}
    with pytest.raises(InvalidError) as caught:
        apply(ADMIN, [credential])
    assert "the key is not that of the first certificate" in caught.value.details[0].message
    apply(ADMIN, [CREDENTIAL])
    with pytest.raises(InvalidError) as caught:
        apply(ADMIN, [gateway(tls={"credentialRef": {"name": "openai-key"}})])
    assert caught.value.details[0].message == "openai-key is of type APIKey; a gateway takes TLSCertificate"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"listener": {"address": "everywhere"}}, "spec.listener.address"),
        ({"listener": {"port": 0}}, "spec.listener.port"),
        ({"streamIdleTimeout": "2h"}, "spec.streamIdleTimeout"),
        ({"maxRequestBodyBytes": 1}, "spec.maxRequestBodyBytes"),
        ({"accessLog": "relative"}, "spec.accessLog"),
        ({"tls": {"credentialRef": {"name": "nobody"}}}, "spec.tls.credentialRef.name"),
    ],
)
def test_what_makes_no_sense_is_refused(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        apply(ADMIN, [gateway(**spec)])
    assert [detail.path for detail in caught.value.details] == [f"documents[0].{path}"]


def test_an_envoy_of_no_gateway_is_sent_that_there_is_nothing() -> None:
    types = (LISTENER, ROUTES, CLUSTER, ENDPOINTS, SECRET, STATIC_GATEWAY)
    assert built() == {type_url: {} for type_url in types}


def test_what_is_kept_for_starts_without_a_control_plane_is_whole() -> None:
    apply(ADMIN, [gateway(), pool(), LIST])
    kept = json.loads(unwrapped(built()[STATIC_GATEWAY]["public"].value))
    clusters = {each["name"]: each for each in kept["static_resources"]["clusters"]}
    assert (set(clusters), clusters["pool-pool"]["type"]) == ({"pool-pool", "epp-pool"}, "STATIC")
    assert "ads" not in json.dumps(kept["static_resources"]["clusters"])
    assert "admin" not in kept


def test_many_pools_cost_no_more_queries_than_one() -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            built()
        return len(captured)

    apply(ADMIN, [gateway(), pool("p0")])
    built()
    one = queries()
    apply(ADMIN, [pool(f"p{number}", models=[f"m{number}"]) for number in range(1, 6)])
    assert queries() == one
