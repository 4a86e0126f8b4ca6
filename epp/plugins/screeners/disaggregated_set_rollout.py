"""Keep all stages of a request on one revision while a DisaggregatedSet rolls out.

Prefill and decode servers of two revisions may not understand one another. So before any profile runs, one
revision is chosen for the request, at random by the revisions' shares, and only its endpoints stay. A
revision has a share when every required role has a ready endpoint. A caller may name label values itself, in
headers of strict selectors; what it names is kept or nobody is, and the response tells the values of the
endpoint that served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, ClassVar, Final, Literal

import msgspec
import numpy as np

from dataplane.errors import ConfigError
from dataplane.plugin.base import DataKey, PluginInfo, PluginParams, Stability, TypedName
from epp.interfaces.endpoint import Candidates, Endpoint, EndpointSpec, Slots
from epp.interfaces.handle import Handle
from epp.interfaces.numbers import Histogram
from epp.interfaces.request import InferenceRequest
from epp.interfaces.request_control import ResponseHead
from epp.plugins.endpoint_facts import SlotsByLabel, shown_label
from epp.plugins.selectors import parse_selector

NO_MATCH: Final = "disaggregatedset_strict_header_no_match_total"
SHARE: Final = "disaggregatedset_revision_gating_share"

MAX_SHOWN_REVISIONS: Final = 256
"""Revisions whose share is exposed; a rollout has two."""

Text = Annotated[str, msgspec.Meta(min_length=1)]


class Scope(PluginParams, frozen=True):
    """Which endpoints belong to the set."""

    label_selector: Text
    """A label selector as text, such as `disaggregatedset.x-k8s.io/name=my-set`."""

    def __post_init__(self) -> None:
        try:
            parse_selector(self.label_selector)
        except ConfigError as error:
            raise error.within("labelSelector") from None


class HeaderSelector(PluginParams, frozen=True):
    """One pair of a header and a label."""

    name: Text
    """Names the selector in metrics."""
    header_name: Text
    """Header of requests and responses that carries the label's value."""
    label_key: Text
    """Label of the endpoints it stands for."""
    mode: Literal["strict", "prefer"]
    """strict keeps only endpoints with the request's value; prefer only tells it in the response."""


class RequireRoles(PluginParams, frozen=True):
    """Roles a revision must have."""

    values: list[Text]
    """Values of the role label, each of which needs a ready endpoint."""


class RevisionGating(PluginParams, frozen=True):
    """How revisions are chosen."""

    mode: Literal["sum", "max-role", "disabled"]
    """What a revision's share goes by: endpoints of all roles, or of the most numerous one; or no gating."""
    revision_label_key: Text = "disaggregatedset.x-k8s.io/revision"
    """Label with the revision."""
    role_label_key: Text = "disaggregatedset.x-k8s.io/role"
    """Label with the role."""
    require_roles: RequireRoles | None = None
    """Roles without which a revision gets no requests; needed unless the mode is disabled."""

    def __post_init__(self) -> None:
        if self.mode != "disabled" and not self.roles:
            raise ConfigError(
                f"mode {self.mode} needs at least one role, such as prefill and decode",
                path="requireRoles.values",
            )
        if len(set(self.roles)) < len(self.roles):
            raise ConfigError("names a role twice", path="requireRoles.values")

    @property
    def roles(self) -> Sequence[str]:
        """The required roles."""
        return self.require_roles.values if self.require_roles is not None else ()


class RolloutScreenerParams(PluginParams, frozen=True):
    """Parameters of disaggregatedset-rollout-screener."""

    scope: Scope
    """Which endpoints belong to the set: `labelSelector`."""
    revision_gating: RevisionGating
    """How revisions are chosen: `mode`, `revisionLabelKey`, `roleLabelKey`, `requireRoles`."""
    header_selectors: list[HeaderSelector] = msgspec.field(default_factory=list)
    """Headers that carry label values: `name`, `headerName`, `labelKey`, `mode`."""

    def __post_init__(self) -> None:
        for field, path in (("name", "name"), ("header_name", "headerName")):
            taken: set[str] = set()
            for i, selector in enumerate(self.header_selectors):
                value = getattr(selector, field).lower()
                if value in taken:
                    raise ConfigError("is taken by another selector", path=f"headerSelectors[{i}].{path}")
                taken.add(value)


class RolloutScreener:
    """Screens by revision and by the labels a caller names."""

    info: ClassVar = PluginInfo(
        "disaggregatedset-rollout-screener", RolloutScreenerParams, stability=Stability.ALPHA
    )

    def __init__(self, name: TypedName, params: RolloutScreenerParams, handle: Handle) -> None:
        self.name = name
        self._table = handle.table
        self._rng = handle.rng
        self._selectors = [(s, s.header_name.lower()) for s in params.header_selectors]
        self._strict = [
            (s.name, header, SlotsByLabel(handle.table, s.label_key))
            for s, header in self._selectors
            if s.mode == "strict"
        ]
        self._unmatched = {name: 0 for name, _, _ in self._strict}
        self._missed: DataKey[str] = DataKey("UnmatchedSelector", name.name)
        gating = params.revision_gating
        self._mode = gating.mode
        self._roles = list(gating.roles)
        self._role_key = gating.role_label_key
        self._revision_key = gating.revision_label_key
        in_scope = parse_selector(params.scope.label_selector).test()

        def counts(spec: EndpointSpec) -> bool:
            return in_scope(spec.labels)

        self._revisions = SlotsByLabel(handle.table, gating.revision_label_key, counts)
        self._read: Mapping[str, Slots] | None = None
        self._members: dict[str, list[Slots]] = {}
        self._all_present: dict[str, float] = {}

    def inherit(self, predecessor: RolloutScreener) -> None:
        """Go on counting where the screener before has stopped."""
        for name in self._unmatched:
            self._unmatched[name] = predecessor._unmatched.get(name, 0)

    def screen(self, request: InferenceRequest, candidates: Candidates) -> Candidates:
        """What strict headers allow, and of that the endpoints of one revision."""
        for name, header, labels in self._strict:
            wanted = request.headers.get(header)
            if wanted:
                candidates = labels.kept(candidates, wanted)
                if not len(candidates):
                    self._count_unmatched(request, name)
                    return candidates
        return candidates if self._mode == "disabled" else self._one_revision(candidates)

    def _count_unmatched(self, request: InferenceRequest, selector: str) -> None:
        """Once per request, which may be screened again with ejected endpoints."""
        if request.get(self._missed) is None:
            request.put(self._missed, selector)
            self._unmatched[selector] += 1

    def reason(self, request: InferenceRequest, candidates: Candidates, endpoint: Endpoint) -> str:
        """The label that a strict header wanted otherwise, else the revision."""
        for selector, header in self._selectors:
            wanted = request.headers.get(header)
            if (
                selector.mode == "strict"
                and wanted
                and endpoint.spec.labels.get(selector.label_key) != wanted
            ):
                return f"{shown_label(endpoint.spec, selector.label_key)}, {header} wants {wanted[:60]!r}"
        return f"{shown_label(endpoint.spec, self._revision_key)}, another revision was drawn"

    def _one_revision(self, candidates: Candidates) -> Candidates:
        """The endpoints of a revision drawn among those with a share and an endpoint here; perhaps none."""
        here = np.zeros(self._table.capacity, dtype=np.bool_)
        here[candidates.slots] = True
        slots = self._revisions.by_value
        table = self._table
        ejected_too = bool(table.barred) and bool(table.ejected[candidates.slots].any())
        every = self.shares(ejected_too=ejected_too)
        shares = {r: share for r, share in every.items() if share and here[slots[r]].any()}
        if not shares:
            return candidates.where(np.zeros(len(candidates), dtype=np.bool_))
        (revision,) = self._rng.choices(list(shares), list(shares.values()))
        return self._revisions.kept(candidates, revision)

    def shares(self, *, ejected_too: bool = False) -> Mapping[str, float]:
        """Revision -> its share of the requests; 0 = a required role has no endpoint that is there.

        Ejected endpoints are not, except where a request may be given one of them.
        """
        slots = self._revisions.by_value
        if self._read is not slots:
            self._members = self._by_role(slots)
            self._all_present = self._weighed({r: [len(s) for s in m] for r, m in self._members.items()})
            self._read = slots
        pool = self._table.all()
        present = pool.present(ejected_too=ejected_too)
        if present is pool:
            return self._all_present
        there = np.zeros(self._table.capacity, dtype=np.bool_)
        there[present.slots] = True
        return self._weighed(
            {r: [int(np.count_nonzero(there[s])) for s in m] for r, m in self._members.items()}
        )

    def _by_role(self, revisions: Mapping[str, Slots]) -> dict[str, list[Slots]]:
        """Slots of each revision by required role."""
        members: dict[str, list[Slots]] = {}
        for revision, slots in revisions.items():
            found: dict[str, list[int]] = {role: [] for role in self._roles}
            for slot in slots.tolist():
                endpoint = self._table.endpoints[slot]
                role = endpoint.spec.labels.get(self._role_key) if endpoint is not None else None
                if role in found:
                    found[role].append(slot)
            members[revision] = [np.array(each, dtype=np.intp) for each in found.values()]
        return members

    def _weighed(self, counts: Mapping[str, Sequence[int]]) -> dict[str, float]:
        """Shares from endpoints per revision and role; among equally numerous roles the first one listed."""
        covered = {revision: each for revision, each in counts.items() if each and min(each)}
        if self._mode == "max-role" and covered:
            totals = [sum(role) for role in zip(*covered.values(), strict=True)]
            largest = totals.index(max(totals))
            weights = {revision: each[largest] for revision, each in covered.items()}
        else:
            weights = {revision: sum(each) for revision, each in covered.items()}
        total = sum(weights.values())
        return {revision: weights.get(revision, 0) / total if total else 0.0 for revision in counts}

    def process_response_headers(
        self, request: InferenceRequest, response: ResponseHead, set_headers: dict[str, str]
    ) -> None:
        """Tell the client the labels of the endpoint that served it."""
        served = self._table.at(response.served) if response.served else None
        labels = (served or response.result.endpoints[0]).spec.labels
        for selector, header in self._selectors:
            if selector.label_key in labels:
                set_headers[header] = labels[selector.label_key]

    def metric_series(self, metric: str) -> Iterable[tuple[Sequence[str], float | Histogram]]:
        """Misses of strict headers, and the revisions' shares."""
        if metric == NO_MATCH:
            return [((name,), count) for name, count in self._unmatched.items()]
        if metric == SHARE and self._mode != "disabled":
            shown = islice(self.shares().items(), MAX_SHOWN_REVISIONS)
            return [((self._mode, revision), share) for revision, share in shown]
        return ()
