"""The extension point that says how full a pool is.

One detector judges for the whole configuration. While its candidates are full, requests of negative priority
are refused; all others are let through.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dataplane.plugin.base import TypedName
from epp.interfaces.endpoint import Candidates


@runtime_checkable
class SaturationDetector(Protocol):
    """Judges from columns of the table, at any moment: nothing has been produced for a request yet."""

    name: TypedName

    def saturation_of(self, candidates: Candidates) -> float:
        """How full these are together: 0 = idle, 1 or more = no room. 1.0 for nobody."""
        ...

    def stale_among(self, candidates: Candidates) -> int:
        """How many of them count as full because too little is known of them."""
        ...
