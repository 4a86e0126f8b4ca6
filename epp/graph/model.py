"""The plugin graph: every plugin instance of one configuration, sorted by what it does.

Immutable, and it shares nothing with another graph but the handle's table, clock and random numbers: a second
one can be built beside a running one and take its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataplane.config.epp import EndpointPickerConfig
from dataplane.plugin.base import DataKey, Plugin
from epp.graph.parser_table import ParserTable
from epp.interfaces.data_layer import DataSource, EndpointDiscovery, EndpointExtractor, Extractor
from epp.interfaces.request_control import (
    Admitter,
    DataProducer,
    EndpointObserver,
    FirstByteObserver,
    Parser,
    PreRequest,
    RequestHeaderProcessor,
    ResponseHeaderProcessor,
    ResponseObserver,
    ResponseReporter,
    Screener,
)
from epp.interfaces.saturation import SaturationDetector
from epp.interfaces.scheduling import ProfileHandler
from epp.scheduling.profile import Profile


@dataclass(frozen=True, slots=True)
class PluginGraph:
    """Plugins by role; within a role in configured order, those created by default last."""

    config: EndpointPickerConfig
    instances: Mapping[str, Plugin]
    """All plugins by instance name."""
    parsers: ParserTable
    request_header_processors: tuple[RequestHeaderProcessor, ...]
    screeners: tuple[Screener, ...]
    producers: tuple[DataProducer, ...]
    """Each after the producers of what it consumes."""
    saturation_detector: SaturationDetector
    """Says when requests of negative priority are refused."""
    admitters: tuple[Admitter, ...]
    profiles: Mapping[str, Profile]
    profile_handler: ProfileHandler
    pre_requests: tuple[PreRequest, ...]
    response_header_processors: tuple[ResponseHeaderProcessor, ...]
    first_byte_observers: tuple[FirstByteObserver, ...]
    response_reporters: tuple[ResponseReporter, ...]
    response_observers: tuple[ResponseObserver, ...]
    endpoint_observers: tuple[EndpointObserver, ...]
    sources: tuple[tuple[DataSource, tuple[Extractor, ...]], ...]
    """Data sources, bound to the extractors they feed."""
    endpoint_extractors: tuple[EndpointExtractor, ...]
    """What derives endpoint attributes from what discovery says."""
    endpoint_attributes: tuple[DataKey[Any], ...]
    """Every attribute that is left on endpoints."""
    discovery: EndpointDiscovery | None
    """What supplies the endpoints; None when the configuration leaves that to the process."""
    warnings: tuple[str, ...]
    """What an operator should know but is no mistake."""

    def parser_for(self, path: str) -> Parser:
        """The parser of a path. ``BadRequestError`` when there is none."""
        return self.parsers.find(path)
