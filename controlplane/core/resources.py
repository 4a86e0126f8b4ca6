"""The rules that all configured kinds share: a service per kind, and documents as its language.

A document is what Kubernetes shows of an object: apiVersion, kind, metadata, spec. A service turns documents
into rows and back. It checks the role, judges the document by the same code as the workers do, compares
versions, writes the audit log, and leaves everything as it was when it refuses.

    metadata.resourceVersion   rises with every change; a change names the version it is meant for
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.core import audit
from controlplane.core.errors import ConflictError, InvalidError, MissingError, StaleError
from controlplane.core.metadata import read_metadata
from controlplane.core.models import Resource
from controlplane.core.references import require_named, require_unnamed
from controlplane.core.roles import Action, Actor, require
from dataplane.config.decode import decode_struct
from dataplane.config.document import join
from dataplane.errors import ConfigError, did_you_mean
from epp.objects import schema

M = TypeVar("M", bound=Resource)
Document = dict[str, Any]

ENVELOPE: Final = ("apiVersion", "kind", "metadata", "status")
"""Fields that documents of all kinds have; ``status`` means nothing."""
FIELDS: Final = (*ENVELOPE, "spec")
"""Those of documents that are not flat."""


class Wanted(msgspec.Struct):
    """What a document asks for, once it is understood."""

    name: str
    labels: dict[str, str]
    spec: Any
    version: int | None
    """The version the change is meant for, if the document says one."""


class Reference(NamedTuple):
    """A column that holds the name of an object of another kind, or nothing."""

    kind: str
    column: str
    """Or a look-up of one in rows of another table: ``links__provider``."""
    path: str
    """Where documents say it: ``spec.poolRef.name``."""
    required: bool = False
    """Whether a name that nobody has is refused; otherwise it is a warning."""


POOL_REFERENCE: Final = Reference(schema.POOL, "pool", "spec.poolRef.name")
"""Of kinds that belong to one pool each."""
POOL_GROUPS: Final = (schema.POOL_GROUP, "pointsman.dev")
"""Of pools that are kept here; pickers leave out what belongs to others."""


def check_pool_ref(ref: schema.PoolRef, problems: list[ConfigError]) -> None:
    """Note a pool of a group that is not kept here."""
    if ref.group not in POOL_GROUPS:
        listed = " or ".join(POOL_GROUPS)
        problems.append(ConfigError(f"must be {listed}, or left out", path="spec.poolRef.group"))


class ResourceService(ABC, Generic[M]):
    """Reads and changes the objects of one kind."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    """How the API's addresses name the kind."""
    versions: ClassVar[Sequence[str]]
    """Accepted values of ``apiVersion``; the first is the one that is written."""
    spec_type: ClassVar[type[msgspec.Struct]]
    """The struct that judges ``spec``: the workers' own."""
    model: ClassVar[type[Any]]
    references: ClassVar[Sequence[Reference]] = ()
    """What objects of the kind name (``controlplane.core.references``)."""
    flat: ClassVar[bool] = False
    """Whether the fields of ``spec_type`` stand beside ``metadata`` instead of in ``spec``."""
    annotations: ClassVar[Sequence[str]] = ()
    """Annotations that mean something to the kind."""
    export_order: ClassVar[Sequence[str]] = ("name",)
    """Columns by which objects are exported, and so made anew elsewhere."""
    unwritten: ClassVar[frozenset[str]] = frozenset({"id"})
    """Columns that changes leave alone; others change them without raising the version."""

    @abstractmethod
    def assign(self, row: M, spec: Any) -> None:
        """Put a judged spec into the row's columns."""

    @abstractmethod
    def spec_of(self, row: M) -> Document:
        """The row's columns as a spec."""

    def check(self, wanted: Wanted, problems: list[ConfigError]) -> None:
        """Say what is wrong with a spec beyond its shape; paths begin with ``spec``."""

    def judge_spec(self, document: Mapping[str, Any], problems: list[ConfigError]) -> Any:
        """What the document says besides its envelope; what is wrong with it goes to ``problems``."""
        if isinstance(document.get("spec"), dict):
            return decode_struct(document["spec"], self.spec_type, "spec", problems)
        problems.append(ConfigError("must be a mapping", path="spec"))
        return None

    def check_change(self, row: M | None, spec: Any, problems: list[ConfigError]) -> None:
        """Say what of a spec does not go with the object there is (None: a new one), or with others."""

    def link(self, row: M, spec: Any) -> None:
        """Write what belongs to a row and is in other tables; the row is written by then."""

    def saved(self, actor: Actor, row: M) -> None:
        """Called after a row is made or updated, in its transaction, before the audit entry."""

    def applied(self, actor: Actor, row: M) -> None:
        """Called after a row was part of an applied set, changed or not, in the set's transaction."""

    def status_of(self, row: M) -> Document:
        """What is shown of an object beyond what a document may say; ignored when it comes back."""
        return {}

    def rows(self, actor: Actor) -> QuerySet[M]:
        """All objects, for filtering and cutting into pages."""
        require(actor, Action.READ, self.kind)
        found: QuerySet[M] = self.model.objects.all()
        return found

    def get(self, actor: Actor, name: str) -> M:
        """One object. ``MissingError`` when there is none of this name."""
        return self._one(self.rows(actor), name)

    def create(self, actor: Actor, document: Mapping[str, Any]) -> M:
        """A new object. ``ConflictError`` when its name is taken."""
        require(actor, Action.WRITE, self.kind)
        return self.insert(actor, self.judge(document))

    def post(self, actor: Actor, document: Mapping[str, Any]) -> tuple[M, Document]:
        """A new object and how to show it this once: a kind may tell here what it tells never again."""
        row = self.create(actor, document)
        return row, self.document(row)

    def insert(self, actor: Actor, wanted: Wanted) -> M:
        """Make what a judged document asks for; the role has been checked."""
        row: M = self.model(name=wanted.name, labels=wanted.labels)
        try:
            with transaction.atomic():
                if self.model.objects.filter(name=wanted.name).exists():
                    raise ConflictError(f"{self.kind} {wanted.name} exists already")
                self._admit(None, wanted.spec)
                self.assign(row, wanted.spec)
                row.save(force_insert=True)
                self._settle(row, wanted.spec)
                self.saved(actor, row)
                audit.record(actor, "create", self.kind, row.name, before=None, after=self.document(row))
        except IntegrityError:
            raise self._collision(wanted.name) from None
        return row

    def update(self, actor: Actor, name: str, document: Mapping[str, Any], version: int | None = None) -> M:
        """Change an object to what the document says.

        ``version`` (or the document's own) is the version the change is meant for; None takes the present
        one. ``StaleError`` when the object has another. A change that changes nothing leaves the version.
        """
        require(actor, Action.WRITE, self.kind)
        wanted = self.judge(document)
        if wanted.name != name:
            raise InvalidError.of([ConfigError(f"is not {name}; names stay", path="metadata.name")])

        def put(row: M) -> None:
            self._admit(row, wanted.spec)
            row.labels = wanted.labels
            self.assign(row, wanted.spec)

        def settle(row: M) -> None:
            self._settle(row, wanted.spec)
            self.saved(actor, row)

        expected = wanted.version if version is None else version
        return self.change(actor, name, expected, put, settle=settle)

    def change(
        self,
        actor: Actor,
        name: str,
        version: int | None,
        act: Callable[[M], None],
        *,
        action: str = "update",
        settle: Callable[[M], None] | None = None,
    ) -> M:
        """Let ``act`` change an object in a transaction, audited as ``action``; the role has been checked.

        ``settle`` is called when the row is written.
        """
        try:
            with transaction.atomic():
                row = self.get(actor, name)
                before = self.document(row)
                self._compare(row, version)
                found = row.version
                act(row)
                if self.document(row) == before:
                    return row
                row.version, row.updated_at = found + 1, timezone.now()
                fields = {
                    f.attname: getattr(row, f.attname)
                    for f in row._meta.concrete_fields
                    if f.attname not in self.unwritten
                }
                if not self.model.objects.filter(pk=row.pk, version=found).update(**fields):
                    # Another transaction was faster between reading and writing.
                    raise StaleError(self.kind, name, found, found + 1, self.document(self.get(actor, name)))
                if settle is not None:
                    settle(row)
                audit.record(actor, action, self.kind, name, before=before, after=self.document(row))
        except IntegrityError:
            raise self._collision(name) from None
        return row

    def delete(self, actor: Actor, name: str, version: int | None = None) -> None:
        """Remove an object; ``version`` as in ``update``. ``ConflictError`` while others name it."""
        require(actor, Action.WRITE, self.kind)
        with transaction.atomic():
            row = self._one(self.rows(actor).select_for_update(), name)
            self._compare(row, version)
            require_unnamed(self.kind, name)
            before = self.document(row)
            row.delete()
            audit.record(actor, "delete", self.kind, name, before=before, after=None)

    def _one(self, rows: QuerySet[M], name: str) -> M:
        row = rows.filter(name=name).first() if is_storable(name) else None
        if row is None:
            raise MissingError(f"there is no {self.kind} {name}")
        return row

    def _admit(self, row: M | None, spec: Any) -> None:
        problems: list[ConfigError] = []
        self.check_change(row, spec, problems)
        if problems:
            raise InvalidError.of(problems)

    def _settle(self, row: M, spec: Any) -> None:
        self.link(row, spec)
        require_named(self, row)

    def _collision(self, name: str) -> ConflictError:
        """The database keeps apart what services do when two are at it at once."""
        return ConflictError(f"{self.kind} {name} collides with what somebody else has just made; try again")

    def _compare(self, row: M, expected: int | None) -> None:
        if expected is not None and expected != row.version:
            raise StaleError(self.kind, row.name, expected, row.version, self.document(row))

    def document(self, row: M) -> Document:
        """The object as it is shown, exported and audited."""
        metadata: Document = {"name": row.name, "resourceVersion": str(row.version)}
        if row.labels:
            metadata["labels"] = row.labels
        document = {
            "apiVersion": self.versions[0],
            "kind": self.kind,
            "metadata": metadata,
            "spec": self.spec_of(row),
        }
        if status := self.status_of(row):
            document["status"] = status
        return document

    def judge(self, document: Mapping[str, Any]) -> Wanted:
        """What the document asks for. ``InvalidError`` with everything that is wrong with it."""
        problems: list[ConfigError] = []
        problems.extend(
            ConfigError(f"is no field of a document{did_you_mean(str(field), FIELDS)}", path=str(field))
            for field in document
            if not self.flat and field not in FIELDS
        )
        if document.get("kind") != self.kind:
            problems.append(ConfigError(f"must be {self.kind}", path="kind"))
        if document.get("apiVersion") not in self.versions:
            listed = " or ".join(self.versions)
            problems.append(ConfigError(f"must be {listed}", path="apiVersion"))
        if not isinstance(document.get("status"), dict | None):
            problems.append(ConfigError("must be a mapping; it means nothing", path="status"))
        name, labels, version = read_metadata(document.get("metadata"), self.annotations, problems)
        spec = self.judge_spec(document, problems)
        wanted = Wanted(name, labels, spec, version)
        if spec is not None and not problems:
            check_texts(labels, "metadata.labels", problems)
            check_texts(document.get("spec"), "spec", problems)
        if spec is not None and not problems:
            self.check(wanted, problems)
        if problems:
            raise InvalidError.of(problems)
        return wanted


def check_texts(value: Any, path: str, problems: list[ConfigError]) -> None:
    """Note every text in plain data that some database does not take."""
    problems.extend(
        ConfigError("holds what is no text: a NUL or half a character", path=place)
        for place, text in _texts(value, path)
        if not is_storable(text)
    )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in plain data, however deep, with its place."""
    left = [(path, value)]
    while left:
        place, item = left.pop()
        if isinstance(item, str):
            yield place, item
        elif isinstance(item, dict):
            yield from ((place, key) for key in item if isinstance(key, str))
            left.extend((join(place, str(key)), inner) for key, inner in reversed(item.items()))
        elif isinstance(item, list):
            left.extend((f"{place}[{index}]", item[index]) for index in reversed(range(len(item))))


def is_storable(text: str) -> bool:
    """Whether every database takes it."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
