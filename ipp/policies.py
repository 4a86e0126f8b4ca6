"""The guardrail policies in force, and where they come from: files that are followed, or a control plane.

A set is compiled aside and takes the place of the running one as a whole; one with a mistake changes nothing.
Without a source a configuration that asks for policies is refused, and until the source has said something
its requests are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dataplane.aside import aside
from dataplane.config.decode import decode_struct
from dataplane.config.document_files import DocumentFiles, PlacedDocument
from dataplane.config.guardrails import API_VERSION, KIND, GuardrailPolicySpec
from dataplane.config.problems import ConfigErrors
from dataplane.config.values import ModelPattern, Name
from dataplane.errors import ConfigError
from ipp.guardrails.asking import Asking
from ipp.guardrails.policies import Policies

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
MAX_POLICIES: Final = 1000


class PoolPlace(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """A pool as policies name it."""

    name: Name
    """As policies name it."""
    models: list[ModelPattern] = []
    """Models that are routed to it."""
    rewrites: dict[str, list[str]] = {}
    """Models that may serve requests for another in it, by that one's name; by the empty name those for all
    others."""
    urls: list[str] = []
    """Where its model servers answer, for policies that ask a model to judge."""


def rewrites_of(rules: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, list[str]]:
    """``PoolPlace.rewrites`` of rules, each the models that it matches, none = all, and its targets."""
    found: dict[str, list[str]] = {}
    for matched, targets in rules:
        for name in matched or ("",):
            known = found.setdefault(name, [])
            known += [target for target in targets if target not in known]
    return found


class PoolTable:
    """Which pool serves a model, and where a pool answers."""

    def __init__(self, pools: Sequence[PoolPlace] = ()) -> None:
        self._exact: dict[str, str] = {}
        self._patterns: list[tuple[str, str]] = []
        self._rewrites = {pool.name: pool.rewrites for pool in pools if pool.rewrites}
        self._urls = {pool.name: tuple(pool.urls) for pool in pools}
        for pool in pools:
            for model in pool.models:
                if model.endswith("*"):
                    self._patterns.append((model[:-1], pool.name))
                else:
                    self._exact.setdefault(model, pool.name)
        self._patterns.sort(key=lambda each: -len(each[0]))

    def pool_of(self, model: str) -> str:
        """Name of the pool; empty when nobody says."""
        found = self._exact.get(model)
        if found is not None or not self._patterns:
            return found or ""
        return next((pool for head, pool in self._patterns if model.startswith(head)), "")

    def served_as(self, pool: str, model: str) -> tuple[str, ...]:
        """Other models that may serve requests for this one in the pool."""
        rewrites = self._rewrites.get(pool)
        if rewrites is None:
            return ()
        return tuple(rewrites.get(model) or rewrites.get("") or ())

    def url_of(self, pool: str, rng: random.Random) -> str | None:
        """One of a pool's servers; None when none is known."""
        urls = self._urls.get(pool)
        return rng.choice(urls) if urls else None


class PolicyHolder:
    """What is in force. Plugins read it at every request."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.pools = PoolTable()
        self.asking = Asking(lambda pool: self.pools.url_of(pool, self._rng))
        self.current: Policies | None = None
        """None = nobody has said anything yet."""
        self.refused: list[str] = []
        """Why the control plane's newest set is not in force; empty when it is, or there is none."""
        self.revisions: Mapping[str, int] = {}
        """Name -> number of the revision, by name; 0 where nobody counts them."""
        self.revision = ""
        """Of the set, as a control plane calls it; empty = it comes from files."""

    def judge(
        self, documents: Sequence[tuple[str, GuardrailPolicySpec]], problems: list[ConfigError]
    ) -> Policies | None:
        """The policies, compiled; None after noting what is wrong. Blocks for as long as that takes."""
        found = Policies(documents, self.asking, problems)
        return None if problems else found

    def put(
        self,
        policies: Policies,
        names: Iterable[str],
        revision: str,
        pools: Sequence[PoolPlace] | None = None,
        revisions: Mapping[str, int] | None = None,
    ) -> None:
        """Put them in force."""
        numbers = revisions or {}
        self.refused = []
        self.revisions = {name: numbers.get(name, 0) for name in names}
        self.current, self.revision = policies, revision
        if pools is not None:
            self.pools = PoolTable(pools)

    def know_pools(self, pools: Sequence[PoolPlace]) -> None:
        """Say which pools there are, where no control plane does."""
        self.pools = PoolTable(pools)

    def describe(self) -> dict[str, Any]:
        """JSON-able: what is in force."""
        return {
            "policies": list(self.revisions),
            "revision": self.revision,
            "revisions": {name: number for name, number in self.revisions.items() if number},
        }


class PolicyFiles:
    """Keeps the holder equal to documents at a path."""

    def __init__(self, path: str, holder: PolicyHolder) -> None:
        self._files = DocumentFiles(path)
        self._holder = holder
        self.problems: list[str] = []
        """Why the newest documents are not in force; empty when they are."""
        self._watcher: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read for the first time. ``ConfigErrors`` with every mistake."""
        problems = await self._attempt()
        if problems:
            raise ConfigErrors(problems, source="--policies-file")

    def watch(self) -> None:
        """Follow the documents from now on."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="policies")

    async def reload(self) -> list[str]:
        """Read now; what is wrong, in which case what is in force stays."""
        self.problems = [str(problem) for problem in await self._attempt()]
        for problem in self.problems:
            log.error("the policies in force stay: %s", problem)
        return self.problems

    async def stop(self) -> None:
        """Follow no longer."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if await aside(self._files.have_changed):
                await self.reload()

    async def _attempt(self) -> list[ConfigError]:
        problems: list[ConfigError] = []
        found = await aside(lambda: self.read(problems))
        if found is not None:
            policies, names = found
            self._holder.put(policies, names, "")
            log.info("guardrail policies in force: %d", len(names))
        return problems

    def read(self, problems: list[ConfigError]) -> tuple[Policies, list[str]] | None:
        """The policies and their names, not yet in force; None after noting what is wrong. Blocks."""
        places: dict[str, list[str]] = {}
        known = []
        for document in self._files.read(problems):
            found = None if document.raw is None else read_policy(document, problems)
            if found is not None:
                known.append(found)
                places.setdefault(found[0], []).append(document.place)
        names = [name for name, _ in known]
        problems += [
            ConfigError(f"is the second policy named '{name}'; the first is {first}", path=second)
            for name, (first, *others) in sorted(places.items())
            for second in others[:1]
        ]
        if len(known) > MAX_POLICIES:
            problems.append(ConfigError(f"there are more than {MAX_POLICIES} policies"))
        if problems:
            return None
        policies = self._holder.judge(known, problems)
        return None if policies is None else (policies, names)


def read_policy(
    document: PlacedDocument, problems: list[ConfigError]
) -> tuple[str, GuardrailPolicySpec] | None:
    """Name and spec of a document; None after noting what is wrong with it."""
    raw, mistakes = document.raw, list[ConfigError]()
    if not isinstance(raw, Mapping):
        problems.append(
            ConfigError("must be a mapping: a document of a GuardrailPolicy", path=document.place)
        )
        return None
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if raw.get(key) != wanted:
            mistakes.append(ConfigError(f"must be {wanted}", path=key))
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        mistakes.append(ConfigError("is missing", path="metadata.name"))
    spec = decode_struct(raw.get("spec"), GuardrailPolicySpec, "spec", mistakes)
    unknown = sorted(map(str, raw.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}))
    mistakes += [ConfigError("unknown field", path=key) for key in unknown]
    problems.extend(error.within(document.place) for error in mistakes)
    return None if mistakes or spec is None or not isinstance(name, str) else (name, spec)
