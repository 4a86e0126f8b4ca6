"""`pointsman ipp`: runs a payload processor, judges its configurations, and describes them."""

from cli.plugin_process import PluginProcess
from ipp.options import FLAGS, parse_args

PROCESSOR = PluginProcess(
    package="ipp",
    help="run a payload processor",
    description="""Run a payload processor: an ext_proc service before routing that reads and checks requests
and answers, and names the pool that serves a request's model.

Flags and configuration files are those of llm-d's processor.""",
    flags=FLAGS,
    parse_args=parse_args,
    registry="ipp.registry",
    config="a PayloadProcessorConfig",
    others="holds guardrail policies, or lists models",
    folder="policies",
)
add_parser = PROCESSOR.add_parser
