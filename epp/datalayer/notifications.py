"""Hands what discovery says of endpoints to the extractors that derive attributes from it.

Told by discovery when endpoints come and when their labels change; a new configuration's extractors are told
of all endpoints there are when they take over. What an extractor leaves goes with its endpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from epp.datalayer.measure import refuse_undeclared
from epp.interfaces.data_layer import EndpointExtractor
from epp.interfaces.endpoint import Endpoint, EndpointTable

log = logging.getLogger(__name__)


class EndpointNotifier:
    """Keeps the attributes of the extractors' keys. An ``EndpointObserver``."""

    def __init__(self, table: EndpointTable, extractors: Sequence[EndpointExtractor]) -> None:
        self._table = table
        self._extractors = extractors

    def refresh(self) -> None:
        """Derive everything anew."""
        if self._extractors:
            for endpoint in self._table.all().endpoints:
                self.on_endpoint_added(endpoint)

    def on_endpoint_added(self, endpoint: Endpoint) -> None:
        """Derive the attributes of one endpoint."""
        for extractor in self._extractors:
            try:
                attributes = extractor.extract(endpoint.spec)
                refuse_undeclared(attributes, frozenset(extractor.produces))
                for key, value in attributes.items():
                    self._table.annotate(endpoint, key, value)
            except Exception:  # an extractor may come from outside; its defect must not stop discovery
                log.exception("%s failed on endpoint %s", extractor.name, endpoint.spec.id)

    on_endpoint_changed = on_endpoint_added

    def on_endpoint_removed(self, endpoint: Endpoint) -> None:
        """Nothing: the table has forgotten the row."""
