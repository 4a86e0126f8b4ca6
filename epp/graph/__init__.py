"""From configuration to the plugin graph a picker runs with."""

from epp.graph.build import build_graph, load_graph
from epp.graph.model import PluginGraph

__all__ = ["PluginGraph", "build_graph", "load_graph"]
