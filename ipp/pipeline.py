"""What one configuration comes to: plugin instances in the order in which a request meets them.

Built aside and completely, or not at all: every mistake is collected, with its path.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from dataplane.config.document import read_document
from dataplane.config.epp_sections import PluginRef
from dataplane.config.ipp import API_VERSION, KIND, PayloadProcessorConfig, ProcessorEntry, parse_ipp_config
from dataplane.config.problems import ConfigErrors, raise_any
from dataplane.errors import ConfigError, did_you_mean
from dataplane.observability.numbers import Counter, Histogram
from dataplane.plugin.instances import AnyPlugin, Instances
from dataplane.plugin.registry import PluginRegistry
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.interfaces.models import ModelData
from ipp.interfaces.plugins import (
    AnswerGuardian,
    BodyGuardian,
    Choosy,
    Conditional,
    ExchangeObserver,
    FixedPicker,
    HeaderOwner,
    ProfilePicker,
    RequestProcessor,
    ResponseProcessor,
    Running,
)
from ipp.interfaces.selection import DataSource, Extractor, UsageExtractor
from ipp.metrics import IppMetrics
from ipp.policies import PolicyHolder
from ipp.verdict_log import VerdictLog
from ipp.wiring import SelectionPlan, check_both_ways, check_data, data_layer, early_guards, is_selecting

SINGLE: Final = "single-profile-picker"
ENVELOPE: Final = ("apiVersion", "kind", "metadata")

DEFAULT_CONFIG: Final = b"""
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins:
- type: body-field-to-header
  parameters: {fieldName: model, headerName: X-Gateway-Model-Name}
- type: base-model-to-header
profiles:
- name: default
  plugins:
    request:
    - pluginRef: body-field-to-header
    - pluginRef: base-model-to-header
"""
"""What runs when nothing is configured, as in llm-d's processor."""


class RequestStep(NamedTuple):
    """One plugin on the way in."""

    plugin: RequestProcessor
    duration: Histogram
    observer: ExchangeObserver | None


class ResponseStep(NamedTuple):
    """One plugin on the way out."""

    plugin: ResponseProcessor
    duration: Histogram
    sees: Callable[[RequestMessage], bool] | None
    """Whether it has anything to do with the response to a request; None = always."""


_Step = TypeVar("_Step", RequestStep, ResponseStep)


class GuardianStep(NamedTuple):
    """One of those that answers to requests without a body pass as well."""

    plugin: AnswerGuardian
    duration: Histogram
    sees: Callable[[RequestMessage], bool] | None


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to process a request and its answer."""

    name: str
    request: tuple[RequestStep, ...]
    response: tuple[ResponseStep, ...]
    requests: Counter
    """Those that it has processed."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A configuration, ready to run."""

    config: PayloadProcessorConfig
    instances: Mapping[str, AnyPlugin]
    before: tuple[RequestStep, ...]
    picker: ProfilePicker
    profiles: Mapping[str, Profile]
    always: Profile | None
    """That of every request, where the picker takes no other."""
    after: tuple[ResponseStep, ...]
    extractors: tuple[Extractor, ...]
    """What learns from every exchange."""
    first_byte_extractors: tuple[Extractor, ...]
    """Those of them that have to see when an answer's body begins."""
    usage_extractors: tuple[UsageExtractor, ...]
    """Those of them that have to know how many tokens an answer took."""
    needs_request_body: bool
    owned_headers: frozenset[str]
    """Taken away from every request before plugins run: they say where it goes, which no client may."""
    warnings: Sequence[str]
    is_idle: bool = False
    """Whether nothing of it looks at an exchange."""
    guardians: tuple[GuardianStep, ...] = ()
    """For answers to requests without a body, whatever profile they are in."""
    body_guardians: tuple[BodyGuardian, ...] = ()
    """Asked about requests whose bodies the gateway does not show."""
    conditional: tuple[Conditional, ...] = ()
    """Plugins that may be idle."""
    without: dict[tuple[bool, ...], Pipeline] = field(default_factory=dict)
    """What is left of it, by which of them are idle."""

    def now(self) -> Pipeline:
        """What it comes to for an exchange that begins now: without the plugins that are idle."""
        for plugin in self.conditional:
            if plugin.is_idle:
                return self._without_idle()
        return self

    def _without_idle(self) -> Pipeline:
        idle = tuple([plugin.is_idle for plugin in self.conditional])
        found = self.without.get(idle)
        if found is None:
            plugins = [plugin for plugin, is_idle in zip(self.conditional, idle, strict=True) if is_idle]
            found = self.without[idle] = _reduced(self, plugins) if plugins else self
        return found

    async def start(self) -> None:
        """Begin what plugins do beside requests. ``ConfigError``: none of them runs."""
        begun: list[Running] = []
        try:
            sources_first = sorted(self.instances.values(), key=lambda each: not isinstance(each, DataSource))
            for plugin in sources_first:
                if isinstance(plugin, Running):
                    begun.append(plugin)
                    await plugin.start()
        except BaseException:
            for plugin in reversed(begun):
                await plugin.close()
            raise

    async def close(self) -> None:
        """End it."""
        for plugin in self.instances.values():
            if isinstance(plugin, Running):
                await plugin.close()


def _reduced(pipeline: Pipeline, idle: Sequence[Any]) -> Pipeline:
    """The pipeline without these plugins."""

    def kept(steps: tuple[_Step, ...]) -> tuple[_Step, ...]:
        return tuple(step for step in steps if all(step.plugin is not plugin for plugin in idle))

    profiles = {
        name: replace(each, request=kept(each.request), response=kept(each.response))
        for name, each in pipeline.profiles.items()
    }
    return _completed(
        replace(
            pipeline,
            before=kept(pipeline.before),
            profiles=MappingProxyType(profiles),
            after=kept(pipeline.after),
            conditional=(),
        )
    )


def _completed(pipeline: Pipeline) -> Pipeline:
    """The pipeline with what follows from its plugins."""
    profiles, picker = pipeline.profiles, pipeline.picker
    always = profiles.get(picker.always(profiles.keys())) if isinstance(picker, FixedPicker) else None
    steps = [*pipeline.before, *(step for profile in profiles.values() for step in profile.request)]
    return replace(
        pipeline,
        always=always,
        guardians=_guardians(
            [*(step for each in profiles.values() for step in each.response), *pipeline.after]
        ),
        body_guardians=tuple(step.plugin for step in steps if isinstance(step.plugin, BodyGuardian)),
        needs_request_body=picker.needs_request_body
        or bool(pipeline.extractors)
        or any(step.plugin.needs_request_body for step in steps),
        is_idle=not (
            pipeline.before
            or pipeline.after
            or always is None
            or always.request
            or always.response
            or pipeline.extractors
            or pipeline.owned_headers
        ),
    )


def load_pipeline(
    text: bytes, handle: Handle, registry: PluginRegistry, *, allow_experimental: bool = False
) -> Pipeline:
    """The pipeline of a configuration's text, empty = the default. ``ConfigErrors`` with all mistakes."""
    problems: list[ConfigError] = []
    raw = read_document(text or DEFAULT_CONFIG, problems)
    raise_any(problems)
    if not isinstance(raw, dict):
        raise ConfigError("a PayloadProcessorConfig is a mapping of sections")
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if raw.get(key) != wanted:
            said = f"must be {wanted}, is {raw[key]!r:.60}" if key in raw else f"is missing; write {wanted}"
            problems.append(ConfigError(said, path=key))
    sections = {key: value for key, value in raw.items() if key not in ENVELOPE}
    found: list[ConfigError] = []
    config = parse_ipp_config(sections, found)
    problems.extend(found)
    if config is None:
        raise ConfigErrors(problems)
    builder = _Builder(config, handle, registry, problems, allow_experimental=allow_experimental)
    if found:
        builder.judge(is_readable=not any(each.message.startswith("expected") for each in found))
        raise ConfigErrors(problems)
    return builder.build()


def judging_handle() -> Handle:
    """What plugins are given that are only to be judged: parts that nobody uses."""
    metrics = IppMetrics()
    rng = random.Random(0)  # noqa: S311 - nothing is drawn
    return Handle(metrics, PolicyHolder(rng), VerdictLog(metrics, "", ""), has_policies=True, rng=rng)


def _guardians(steps: Sequence[ResponseStep]) -> tuple[GuardianStep, ...]:
    found = {
        id(step.plugin): GuardianStep(step.plugin, step.duration, step.sees)
        for step in steps
        if isinstance(step.plugin, AnswerGuardian)
    }
    return tuple(found.values())


class _Builder:
    """Creates the instances and puts them in their places."""

    def __init__(
        self,
        config: PayloadProcessorConfig,
        handle: Handle,
        registry: PluginRegistry,
        problems: list[ConfigError],
        *,
        allow_experimental: bool,
    ) -> None:
        self._config = config
        self._metrics: IppMetrics = handle.metrics
        data = ModelData()
        self._instances = Instances(
            registry,
            lambda plugins, parameters: replace(handle, plugins=plugins, parameters=parameters, data=data),
            allow_experimental=allow_experimental,
        )
        self._instances.problems = problems
        self._used: set[str] = set()

    def judge(self, *, is_readable: bool) -> None:
        """Note what else is wrong with a configuration that is no good as a whole.

        ``is_readable``: whether all of it could be read; otherwise what is missing may be what was not.
        """
        config, instances, told = self._config, self._instances, self._instances.problems
        instances.create_all(config.plugins)
        if not is_readable:
            return
        instances.problems = []
        for index, profile in enumerate(config.profiles):
            self._profile_steps(f"profiles[{index}].plugins.request", profile.plugins.request)
            self._response_steps(f"profiles[{index}].plugins.response", profile.plugins.response)
            check_both_ways(index, profile, instances)
        self._request_steps("preProcessing.plugins", config.pre_processing.plugins)
        self._response_steps("postProcessing.plugins", config.post_processing.plugins)
        self._picker({profile.name for profile in config.profiles})
        data_layer(config.datalayer, instances)
        known = {problem.path for problem in told}
        told.extend(problem for problem in instances.problems if problem.path not in known)

    def build(self) -> Pipeline:
        config, instances = self._config, self._instances
        instances.create_all(config.plugins)
        before = self._request_steps("preProcessing.plugins", config.pre_processing.plugins)
        profiles = {
            profile.name: Profile(
                profile.name,
                self._profile_steps(f"profiles[{index}].plugins.request", profile.plugins.request),
                self._response_steps(f"profiles[{index}].plugins.response", profile.plugins.response),
                self._metrics.profiles.child(profile.name),
            )
            for index, profile in enumerate(config.profiles)
        }
        picker = self._picker(profiles.keys())
        after = self._response_steps("postProcessing.plugins", config.post_processing.plugins)
        for index, profile in enumerate(config.profiles):
            check_both_ways(index, profile, instances)
        layer = data_layer(config.datalayer, instances)
        check_data(config, layer, instances)
        raise_any(instances.problems)
        assert picker is not None  # noqa: S101 - a picker that is none has problems
        return _completed(
            Pipeline(
                config=config,
                instances=MappingProxyType(instances.by_name),
                before=before,
                picker=picker,
                profiles=MappingProxyType(profiles),
                always=None,
                after=after,
                extractors=layer.extractors,
                first_byte_extractors=tuple(each for each in layer.extractors if each.needs_first_byte),
                usage_extractors=tuple(
                    each for each in layer.extractors if isinstance(each, UsageExtractor) and each.needs_usage
                ),
                needs_request_body=False,
                owned_headers=frozenset(
                    name.lower() for plugin in instances.of(HeaderOwner) for name in plugin.owned_headers()
                ),
                warnings=(*instances.warnings, *self._unused(), *self._early(before, profiles)),
                conditional=tuple(instances.of(Conditional)),
            )
        )

    def _picker(self, profiles: Collection[str]) -> Any:
        """The picker; None after noting why there is none."""
        ref = self._config.profile_picker
        if ref is None:
            found: Any = self._instances.first_of(SINGLE)
        else:
            found = self._find("profilePicker.pluginRef", ref.plugin_ref, ProfilePicker, "picks no profiles")
        if found is not None:
            self._used.add(found.name.name)
            names = [spec.name or spec.type for spec in self._config.plugins]
            for name, path in found.named_profiles():
                if profiles and name not in profiles:
                    there = sorted(profiles)
                    hint = did_you_mean(name, there) or f"; there are {', '.join(there)}"
                    at = f"plugins[{names.index(found.name.name)}].parameters.{path}"
                    self._instances.problem(f"there is no profile '{name}'{hint}", at)
        return found

    def _request_steps(self, path: str, entries: Sequence[PluginRef]) -> tuple[RequestStep, ...]:
        steps = []
        for index, entry in enumerate(entries):
            at = f"{path}[{index}].pluginRef"
            plugin = self._find(at, entry.plugin_ref, RequestProcessor, "processes no requests")
            if plugin is not None:
                steps.append(self._request_step(plugin))
        return tuple(steps)

    def _profile_steps(self, path: str, entries: Sequence[ProcessorEntry]) -> tuple[RequestStep, ...]:
        """Those of a profile, in which a selector may stand with its helpers."""
        plan = SelectionPlan(self._instances)
        steps: list[RequestStep | None] = []
        for index, entry in enumerate(entries):
            at = f"{path}[{index}]"
            plugin = self._find(f"{at}.pluginRef", entry.plugin_ref, object, "")
            if plugin is None:
                plan.is_known = False
                continue
            if is_selecting(plugin):
                if plan.add(plugin, entry.weight, at):
                    steps.append(None)
            elif self._can(plugin, RequestProcessor, "processes no requests", f"{at}.pluginRef"):
                steps.append(self._request_step(plugin))
        selection = plan.step()
        self._used.update(plan.used)
        if selection is None:
            return tuple(step for step in steps if step is not None)
        return tuple(self._request_step(selection) if step is None else step for step in steps)

    def _request_step(self, plugin: RequestProcessor) -> RequestStep:
        observer = plugin if isinstance(plugin, ExchangeObserver) else None
        return RequestStep(plugin, self._metrics.plugin("request", plugin.name), observer)

    def _response_steps(
        self, path: str, entries: Sequence[PluginRef | ProcessorEntry]
    ) -> tuple[ResponseStep, ...]:
        steps = []
        for index, entry in enumerate(entries):
            at = f"{path}[{index}].pluginRef"
            plugin = self._find(at, entry.plugin_ref, ResponseProcessor, "processes no responses")
            if plugin is not None:
                sees = plugin.sees_response if isinstance(plugin, Choosy) else None
                steps.append(ResponseStep(plugin, self._metrics.plugin("response", plugin.name), sees))
        return tuple(steps)

    def _find(self, path: str, name: str, role: Any, lacking: str) -> Any:
        """The instance of a reference that can play its role; None after noting why there is none."""
        plugin = self._instances.lookup(name, path)
        if plugin is None:
            return None
        self._used.add(name)
        return plugin if self._can(plugin, role, lacking, path) else None

    def _can(self, plugin: AnyPlugin, role: Any, lacking: str, path: str) -> bool:
        """Whether a plugin can play a role; noted when not."""
        if isinstance(plugin, role):
            return True
        self._instances.problem(f"plugin '{plugin.name.name}' (type: {plugin.name.type}) {lacking}", path)
        return False

    def _early(self, before: Sequence[RequestStep], profiles: Mapping[str, Profile]) -> list[str]:
        return [
            warning
            for name, profile in profiles.items()
            for warning in early_guards(name, [step.plugin for step in (*before, *profile.request)])
        ]

    def _unused(self) -> list[str]:
        layer = self._config.datalayer
        used = self._used | self._instances.referenced
        used |= {ref.plugin_ref for ref in (*layer.collectors, *layer.extractors, *layer.datasources)}
        return [f"plugin '{name}' is used nowhere" for name in self._instances.by_name if name not in used]
