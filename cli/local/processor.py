"""What the payload processor of a gateway file runs.

Whoever writes policies into the file wants them enforced: left out, the configuration is one that does, and
one that does not is refused. The pools by which policies choose are those of the file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cli.local.config import PoolSection, ProcessorSection
from dataplane.errors import ConfigError
from ipp.policies import rewrites_of

HEAD: Final = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "PayloadProcessorConfig"}
GUARDRAILS: Final = "guardrails"
ENFORCING: Final[Mapping[str, Any]] = {
    "plugins": [
        {
            "type": "body-field-to-header",
            "parameters": {"fieldName": "model", "headerName": "X-Gateway-Model-Name"},
        },
        {"type": "base-model-to-header"},
        {"type": GUARDRAILS},
    ],
    "profiles": [
        {
            "name": "default",
            "plugins": {
                "request": [
                    {"pluginRef": "body-field-to-header"},
                    {"pluginRef": "base-model-to-header"},
                    {"pluginRef": GUARDRAILS},
                ],
                "response": [{"pluginRef": GUARDRAILS}],
            },
        }
    ],
}
"""The processor's built-in configuration, and policies enforced."""


def processor_document(section: ProcessorSection, pools: Sequence[PoolSection]) -> Mapping[str, Any] | None:
    """The PayloadProcessorConfig; None = the built-in one. ``ConfigError`` when it leaves policies alone."""
    if section.config is None and not section.policies:
        return None
    config = ENFORCING if section.config is None else section.config
    plugins = config.get("plugins") or []
    if not isinstance(plugins, list):  # which the processor refuses with its own words
        return {**HEAD, **config}
    if section.policies and not any(map(_enforces, plugins)):
        raise ConfigError(
            "enforces no policies: list a plugin of type guardrails here and in a profile, "
            "or take payloadProcessor.policies out",
            path="payloadProcessor.config.plugins",
        )
    known = [_place(pool) for pool in pools]
    return {
        **HEAD,
        **config,
        "plugins": [_with_pools(each, known) if _enforces(each) else each for each in plugins],
    }


def _place(pool: PoolSection) -> Mapping[str, Any]:
    """A pool as policies know it."""
    rules = [
        ([match.model.value for match in rule.matches], [target.model_rewrite for target in rule.targets])
        for rule in pool.rewrites
    ]
    place: dict[str, Any] = {"name": pool.name, "models": pool.names}
    return place | {"rewrites": rewrites_of(rules)} if rules else place


def _enforces(plugin: Any) -> bool:
    return isinstance(plugin, Mapping) and plugin.get("type") == GUARDRAILS


def _with_pools(plugin: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plugin, told the pools unless it says some itself."""
    parameters = plugin.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        return plugin
    return {**plugin, "parameters": {"pools": known, **parameters}}
