"""Plugin parameters are decoded strictly, with the place of the instance in each message."""

from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, PluginParams
from dataplane.plugin.params import decode_params


class Params(PluginParams, frozen=True):
    queue_depth: int = 5
    name: str = ""


INFO = PluginInfo("thing", Params)


def test_absent_parameters_take_their_defaults():
    problems: list[ConfigError] = []
    assert decode_params(None, INFO, "plugins[0].parameters", problems) == Params()
    assert problems == []


def test_parameters_are_read_in_camel_case():
    problems: list[ConfigError] = []
    assert decode_params({"queueDepth": 7}, INFO, "plugins[0].parameters", problems) == Params(queue_depth=7)
    assert problems == []


def test_mistakes_carry_the_path_of_the_instance():
    problems: list[ConfigError] = []
    decode_params({"queueDepht": 7, "name": 3}, INFO, "plugins[2].parameters", problems)
    assert [str(problem) for problem in problems] == [
        'plugins[2].parameters.queueDepht: unknown field (did you mean "queueDepth"?)',
        "plugins[2].parameters.name: expected str, got int",
    ]
