"""Guardrail policies on the discovery stream: to every payload processor one set, with all it should enforce.

With them go the pools by which policies choose, and of pools that judge for a policy a few of their servers:
what is asked there does not pass a gateway, and so no guardrail. Each policy names its revision and the
newest rollout of it, so a revision that is tried again makes another set. What was sent is kept, because a
processor answers for the set as a whole, by its digest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from controlplane.configs.content import parsed
from controlplane.configs.delivery import pair_of
from controlplane.configs.workers import Desired, Key
from controlplane.fleet import endpoints
from controlplane.fleet.models import InferencePool
from controlplane.gateways.reading import Lists, matched_models, names_of, rewriting_rules, rewritten_models
from controlplane.policies.models import PolicySet
from controlplane.policies.sets import Wanted
from dataplane.addresses import host_port
from dataplane.xds.codec import wrapped
from dataplane.xds.messages import GUARDRAILS, Resource, digest_of
from ipp.policies import rewrites_of

MAX_SERVERS: Final = 16
"""Of a pool that judges."""
KEPT_SETS: Final = 500

Set = tuple[Key, ...]


class GuardrailsBuilder:
    """What each processor should have in force."""

    def __init__(self) -> None:
        self._lists = Lists()

    def build(self, names: Collection[str]) -> Mapping[str, Mapping[str, Mapping[str, Resource]]]:
        """``PROCESSOR/ID`` of processors -> type -> the one resource, named as the processor."""
        pairs = {name: pair_of(name) for name in names}
        wanted = Wanted(list(pairs.values()))
        chosen = {name: wanted.of(worker) for name, (worker, _) in pairs.items()}
        values = self._values(wanted, set(chosen.values()))
        built: dict[str, Mapping[str, Mapping[str, Resource]]] = {}
        made: dict[tuple[str, Set], Resource] = {}
        for name, (_, processor) in pairs.items():
            key = (processor, chosen[name])
            if key not in made:
                made[key] = Resource(processor, values[chosen[name]])
            built[name] = {GUARDRAILS: {processor: made[key]}}
        _keep({digest_of((resource,)): _members(wanted, each) for (_, each), resource in made.items()})
        return built

    def _values(self, wanted: Wanted, chosen: Collection[Set]) -> dict[Set, bytes]:
        """Sets as they are sent."""
        keys = {key for each in chosen for key in each}
        specs = {key: parsed(wanted.revision(key).content)["spec"] for key in keys}
        judging = {key: _judging(spec) for key, spec in specs.items()}
        # The order in which gateways give a model that two pools serve to one of them.
        pools = list(InferencePool.objects.order_by("created_at", "name"))
        rules = rewriting_rules()
        rewritten, rewrites = rewritten_models(rules), _rewrites(rules)
        servers = self._servers({pool for each in judging.values() for pool in each})
        values = {}
        for each in chosen:
            asked = {pool for key in each for pool in judging[key]}
            said = {
                "policies": [_said(wanted.revision(key), specs[key]) for key in each],
                "pools": [
                    {
                        "name": pool.name,
                        "models": names_of(pool.spec, rewritten.get(pool.name, ())),
                        "urls": servers.get(pool.name, []) if pool.name in asked else [],
                    }
                    | ({"rewrites": rewrites[pool.name]} if pool.name in rewrites else {})
                    for pool in pools
                ],
            }
            values[each] = wrapped(msgspec.json.encode(said, order="sorted"))
        return values

    def _servers(self, pools: Collection[str]) -> dict[str, list[str]]:
        if not pools:
            return {}
        found = self._lists.addresses()
        for name, reported in endpoints.addresses(pools).items():
            found.setdefault(name, set()).update(reported)
        return {
            pool: [f"http://{host_port(address, port)}" for address, port in sorted(found.get(pool, ()))][
                :MAX_SERVERS
            ]
            for pool in pools
        }


def _rewrites(rules: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, list[str]]]:
    """Pool -> ``PoolPlace.rewrites``."""
    return {
        pool: rewrites_of(
            (matched_models(rule), [target["modelRewrite"] for target in rule["targets"]]) for rule in said
        )
        for pool, said in rules.items()
    }


def _said(revision: Desired, spec: Any) -> dict[str, Any]:
    return {
        "name": revision.document,
        "spec": spec,
        "revision": revision.revision,
        "rollout": revision.rollout,
    }


def _judging(spec: Any) -> set[str]:
    """Pools whose models a policy asks."""
    return {
        rule["parameters"]["pool"]
        for rule in spec["rules"]
        if rule["type"] == "judge" and "pool" in rule.get("parameters", {})
    }


def _members(wanted: Wanted, chosen: Set) -> list[tuple[int, int, int]]:
    return [(pk, number, wanted.revision((pk, number)).rollout) for pk, number in chosen]


def _keep(sets: Mapping[str, Sequence[tuple[int, int, int]]]) -> None:
    """Write down sets that are new, by digest; of all of them the newest stay."""
    known = set(PolicySet.objects.filter(digest__in=sets).values_list("digest", flat=True))
    new = [
        PolicySet(digest=digest, members=members) for digest, members in sets.items() if digest not in known
    ]
    if not new:
        return
    PolicySet.objects.bulk_create(new, ignore_conflicts=True)
    oldest = PolicySet.objects.values_list("pk", flat=True)[KEPT_SETS - 1 : KEPT_SETS].first()
    if oldest is not None:
        PolicySet.objects.filter(pk__lt=oldest).delete()
