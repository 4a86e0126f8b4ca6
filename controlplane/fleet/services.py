"""The rules of pools and endpoint lists; both are judged by the code that pickers read them with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from controlplane.core.errors import InvalidError
from controlplane.core.resources import POOL_REFERENCE, Document, ResourceService, Wanted, check_pool_ref
from controlplane.fleet.models import EndpointList, InferencePool
from controlplane.fleet.specs import ENDPOINT_LIST, EndpointListSpec, InferencePoolSpec
from dataplane.config.encode import encode_struct
from dataplane.errors import ConfigError
from epp.objects import schema
from epp.plugins.endpoint_file import MAX_FILE_BYTES, clashes
from epp.plugins.endpoint_list import API_VERSION, KIND, list_servers

OWN_FIELDS: Final = ("driver", "models")
"""Of ``pointsman.dev/v1`` alone."""


class PoolService(ResourceService[InferencePool]):
    """InferencePools."""

    kind = schema.POOL
    plural = "pools"
    versions = schema.VERSIONS[schema.POOL]
    spec_type = InferencePoolSpec
    model = InferencePool

    def assign(self, row: InferencePool, spec: Any) -> None:
        """The whole spec, and the driver for filtering."""
        row.spec = encode_struct(spec)
        row.driver = "" if spec.driver is None else spec.driver.type

    def spec_of(self, row: InferencePool) -> Document:
        """As Kubernetes shows it: with defaults."""
        spec: Document = row.spec
        return spec

    def document(self, row: InferencePool) -> Document:
        """Of Kubernetes' version unless it says what that has no word for."""
        found = super().document(row)
        is_ours = any(field in row.spec for field in OWN_FIELDS)
        return found | {"apiVersion": schema.OWN_VERSION} if is_ours else found

    def judge(self, document: Mapping[str, Any]) -> Wanted:
        """As for every kind; and fields of ours need our version, as a Kubernetes server refuses them."""
        wanted = super().judge(document)
        said = [field for field in OWN_FIELDS if getattr(wanted.spec, field) is not None]
        if said and document.get("apiVersion") != schema.OWN_VERSION:
            needs = f"needs apiVersion {schema.OWN_VERSION}"
            raise InvalidError.of([ConfigError(needs, path=f"spec.{field}") for field in said])
        return wanted


class EndpointListService(ResourceService[EndpointList]):
    """EndpointLists."""

    kind = ENDPOINT_LIST
    plural = "endpointlists"
    versions = (API_VERSION,)
    spec_type = EndpointListSpec
    model = EndpointList
    references = (POOL_REFERENCE,)

    def assign(self, row: EndpointList, spec: Any) -> None:
        """Pool and entries."""
        row.pool, row.resolve, row.endpoints = spec.pool_ref.name, spec.resolve, spec.endpoints

    def spec_of(self, row: EndpointList) -> Document:
        """As it was written."""
        spec: Document = {"poolRef": {"name": row.pool}}
        if row.resolve:
            spec["resolve"] = row.resolve
        return spec | {"endpoints": row.endpoints}

    def check(self, wanted: Wanted, problems: list[ConfigError]) -> None:
        """What a picker would leave out is refused here, where somebody can mend it."""
        check_pool_ref(wanted.spec.pool_ref, problems)
        found: list[ConfigError] = []
        document = file_document(wanted.spec.resolve, wanted.spec.endpoints)
        listing = list_servers(document, found)
        if listing is not None:
            found += clashes(listing.servers)
        problems += [problem.within("spec") for problem in found]
        if len(json.dumps(document)) > MAX_FILE_BYTES:
            problems.append(
                ConfigError(
                    f"is larger than {MAX_FILE_BYTES} bytes, the most a picker reads", path="spec.endpoints"
                )
            )


def file_document(resolve: Mapping[str, Any], endpoints: list[Any]) -> Document:
    """The document of an endpoints file."""
    found: Document = {"apiVersion": API_VERSION, "kind": KIND}
    if resolve:
        found["resolve"] = resolve
    return found | {"endpoints": endpoints}
