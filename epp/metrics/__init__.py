"""The picker's metrics: ``EppMetrics`` for the process, ``RequestMetrics`` for one kind of request."""

from epp.metrics.epp_metrics import EppMetrics, PrefixIndex
from epp.metrics.request import RequestMetrics

__all__ = ["EppMetrics", "PrefixIndex", "RequestMetrics"]
