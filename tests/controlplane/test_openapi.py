"""The API does what its description says, whatever is sent: every operation, generated requests, all checks.

The database holds an object of each kind and is as it was before each request. Half of the requests go to one
of these objects in its present version, so that good answers are seen as often as refusals. What is generated
is the same in every run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig

from controlplane.core.kinds import KINDS
from controlplane.core.roles import Role
from tests.support.controlplane import EXAMPLES, everything_is_there, token

REQUESTS: Final = int(os.environ.get("POINTSMAN_TEST_API_REQUESTS", "8"))
"""For each operation."""
WITH_BOUNDARIES: Final = REQUESTS > 50
"""Whether every boundary of every schema is tried as well: minutes of work, for who looks for more."""
ACCEPTED: Final = ["2xx", 304, 404, 409, 412, 422, 428]
"""What a request of the described shape may be answered with: what shapes cannot say is told with a 422."""


def described() -> dict[str, Any]:
    """The description, with names of objects that are there among those that could be."""
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    kinds = {service.plural: service.kind for service in KINDS.all()}
    for path, operations in found["paths"].items():
        kind = kinds.get(path.split("/")[3])
        name = EXAMPLES[kind]["metadata"]["name"] if kind else "known"
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                there = {"name": name, "token": "known", "If-Match": '"1"', "number": 1}.get(
                    parameter["name"]
                )
                if there is not None:
                    parameter["schema"] = {"anyOf": [{"enum": [there]}, parameter["schema"]]}
    # Schemathesis reads one document of YAML, and an export has many; test_api.py looks at that one.
    exported = found["paths"]["/api/v1/export"]["get"]["parameters"]
    exported[:] = [parameter for parameter in exported if parameter["name"] != "format"]
    # What is no document of any kind takes a minute to find; each kind is sent alone as well.
    schemas, reference = found["components"]["schemas"], "#/components/schemas/"
    schemas["Few"] = {"oneOf": [{"$ref": f"{reference}Tenant"}, {"$ref": f"{reference}InferenceObjective"}]}
    applied = found["paths"]["/api/v1/apply"]["post"]
    text = json.dumps(applied["requestBody"]).replace(f"{reference}Document", f"{reference}Few")
    applied["requestBody"] = json.loads(text)
    return found


API = schemathesis.openapi.from_dict(
    described(),
    config=SchemathesisConfig.from_dict(
        {
            "checks": {"positive_data_acceptance": {"expected-statuses": ACCEPTED}},
            # Each request has the token; what those without it get is told by test_permissions.py.
            "generation": {"with-security-parameters": False},
            "phases": {"coverage": {"enabled": WITH_BOUNDARIES}},
        }
    ),
)
API.app = get_wsgi_application()


@pytest.fixture(scope="module")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """What tests change is undone before the next."""
    with django_db_blocker.unblock(), everything_is_there():
        yield


@pytest.fixture
def headers(seeded: None, db: None) -> Iterator[dict[str, str]]:
    """A database with an object of each kind, and what an administrator sends.

    Requests leave the database's connection open, as those of Django's own test client do: the test's
    transaction is in it.
    """
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield {"Authorization": f"Bearer {token(Role.ADMIN)}"}
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@API.parametrize()
@settings(
    max_examples=REQUESTS,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_an_operation_answers_as_it_is_described(case: schemathesis.Case, headers: dict[str, str]) -> None:
    with transaction.atomic():
        case.call_and_validate(headers=headers)
        transaction.set_rollback(True)
