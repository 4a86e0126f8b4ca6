"""Reaching a rank of a data-parallel server through the one port at which its sidecar listens."""

from __future__ import annotations

import msgspec

from dataplane.headers import DATA_PARALLEL, DESTINATION_ENDPOINT
from epp.interfaces.endpoint import Endpoint


def reach_through_primary_port(rank: Endpoint, port: int, set_headers: dict[str, str]) -> None:
    """Send the request to ``port`` of the rank's host; a header tells the sidecar there which rank it is."""
    set_headers[DATA_PARALLEL] = rank.key
    set_headers[DESTINATION_ENDPOINT] = msgspec.structs.replace(rank.spec, port=port).key
