"""What is rolled out: each kind of configuration, which workers run it, and how its documents are judged.

A picker runs the document that lists its pool. A payload processor runs the document that is named like it,
and guardrail policies, all there are, as one set. Workers tell on their streams as whose they come:
``node.cluster`` is the name of the pool or the processor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, Final

from controlplane.configs.content import Content, judge_picker, judge_policy, judge_processor
from controlplane.configs.models import ConfigDocument, PoolBinding
from controlplane.xds.nodes import NodeKind
from dataplane.config import epp_checks, guardrails, ipp
from dataplane.errors import ConfigError
from dataplane.xds.messages import GUARDRAILS, PICKER_CONFIG, PROCESSOR_CONFIG


class Subject(ABC):
    """A kind of configuration."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    """How the API's addresses name it."""
    node: ClassVar[NodeKind]
    """Its workers."""
    type_url: ClassVar[str]
    """Of what these are sent."""
    is_blocking: ClassVar[bool] = False
    """Whether workers have guardrails, and tell how many requests these have ended."""
    is_one_of_many: ClassVar[bool] = False
    """Whether a worker runs all documents of the kind that are published, instead of one."""
    is_overtaken: ClassVar[bool] = False
    """Whether a revision for everybody takes the place of one that is on its way to everybody, so that nobody
    who wants to mend something has to wait for a worker that does not answer."""

    @abstractmethod
    def judge(self, document: Mapping[str, Any], problems: list[ConfigError]) -> Content | None:
        """The content of a document; None after noting in ``problems`` all that is wrong with it."""

    @abstractmethod
    def clusters(self, row: ConfigDocument) -> Any:
        """Whose workers run a document: names, or a query for them; None for all workers of the kind."""


class OneEach(Subject):
    """A kind of which a worker runs one document."""

    @abstractmethod
    def documents(self, clusters: Collection[str]) -> Iterator[tuple[str, ConfigDocument]]:
        """The document of each cluster that has one, in one query; its active revision comes along."""

    def document_of(self, cluster: str) -> ConfigDocument | None:
        """The document that the workers of a cluster run."""
        return next((row for _, row in self.documents([cluster])), None)


class PickerSubject(OneEach):
    """EndpointPickerConfigs."""

    kind = epp_checks.KIND
    plural = "endpointpickerconfigs"
    node = NodeKind.PICKER
    type_url = PICKER_CONFIG

    def judge(self, document: Mapping[str, Any], problems: list[ConfigError]) -> Content | None:
        """By the picker's graph."""
        return judge_picker(document, problems)

    def clusters(self, row: ConfigDocument) -> Any:
        """Its pools."""
        return row.bindings.values("pool")

    def documents(self, clusters: Collection[str]) -> Iterator[tuple[str, ConfigDocument]]:
        """Those that list the pools."""
        for binding in PoolBinding.objects.select_related("document__active").filter(pool__in=clusters):
            yield binding.pool, binding.document


class ProcessorSubject(OneEach):
    """PayloadProcessorConfigs."""

    kind = ipp.KIND
    plural = "payloadprocessorconfigs"
    node = NodeKind.PROCESSOR
    type_url = PROCESSOR_CONFIG
    is_blocking = True

    def judge(self, document: Mapping[str, Any], problems: list[ConfigError]) -> Content | None:
        """By the processor's structs."""
        return judge_processor(document, problems)

    def clusters(self, row: ConfigDocument) -> Any:
        """The processor of its name."""
        return [row.name]

    def documents(self, clusters: Collection[str]) -> Iterator[tuple[str, ConfigDocument]]:
        """Those of these names."""
        rows = ConfigDocument.objects.select_related("active").filter(kind=self.kind, name__in=clusters)
        for row in rows:
            yield row.name, row


class PolicySubject(Subject):
    """GuardrailPolicies: whatever traffic they are for, every payload processor has all of them."""

    kind = guardrails.KIND
    plural = "guardrailpolicies"
    node = NodeKind.PROCESSOR
    type_url = GUARDRAILS
    is_blocking = True
    is_one_of_many = True
    is_overtaken = True

    def judge(self, document: Mapping[str, Any], problems: list[ConfigError]) -> Content | None:
        """By the processor's compiler of rules."""
        return judge_policy(document, problems)

    def clusters(self, row: ConfigDocument) -> Any:
        """Everybody's."""
        return None


PICKERS: Final = PickerSubject()
PROCESSORS: Final = ProcessorSubject()
POLICIES: Final = PolicySubject()
SUBJECTS: Final[Mapping[str, Subject]] = {
    subject.kind: subject for subject in (PICKERS, PROCESSORS, POLICIES)
}
"""By kind."""
BY_TYPE: Final[Mapping[str, OneEach]] = {subject.type_url: subject for subject in (PICKERS, PROCESSORS)}
"""Of kinds of which a worker runs one document."""


def subject_of(row: ConfigDocument) -> Subject:
    """What a document is."""
    return SUBJECTS[row.kind]
