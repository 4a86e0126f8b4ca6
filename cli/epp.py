"""`pointsman epp`: runs an Endpoint Picker, judges its configurations, and describes them."""

from cli.plugin_process import PluginProcess
from epp.options import FLAGS, parse_args

PICKER = PluginProcess(
    package="epp",
    help="run an Endpoint Picker for one pool",
    description="""Run an Endpoint Picker for one pool: an ext_proc service that names, for each request, the
model server that already holds most of the prompt in its KV cache and has room.

Flags and configuration files are those of llm-d's picker.""",
    flags=FLAGS,
    parse_args=parse_args,
    registry="epp.graph.registry",
    config="an EndpointPickerConfig",
    others="holds objectives and model rewrites, or lists endpoints",
    folder="objects",
)
add_parser = PICKER.add_parser
