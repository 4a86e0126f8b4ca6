"""Carries a pool's endpoints from the file the simulator writes to the file Envoy follows.

The picker follows the first file itself. Envoy needs the same endpoints in its own format, because a picked
address must be an endpoint of the pool's cluster; so the file is read by the picker's own reader, and both
agree on what is usable. Files are replaced atomically, so nobody reads half of one. A file of which nothing
is usable leaves Envoy with the endpoints it has; what is wrong is said once per change.
"""

import asyncio
import json

from cli.local.plan import PoolPlan
from controlplane.xds.envoy.clusters import endpoint_assignment
from dataplane.errors import ConfigError
from dataplane.files import FileSignature
from dataplane.processes.child import Say
from dataplane.processes.folder import write_atomically
from epp.plugins.endpoint_file import read_endpoint_file

POLL_S = 0.2


class ClusterFile:
    """Keeps the cluster file of one pool up to date."""

    def __init__(self, pool: PoolPlan, say: Say) -> None:
        self.pool = pool
        self.endpoints: list[tuple[str, int]] = []
        self._say = say
        self._version = 0
        self._seen = FileSignature()

    def write(self) -> None:
        """Write the endpoints known so far, none at first; Envoy needs the file to exist."""
        self._version += 1
        assignment = endpoint_assignment(self.pool.name, self.endpoints, self._version)
        write_atomically(self.pool.cluster_file, json.dumps(assignment))

    def refresh(self) -> None:
        """Take over the simulator's file if it has changed since the last look."""
        source = str(self.pool.endpoints_file)
        seen = FileSignature.of(source)
        if seen in {self._seen, FileSignature()}:
            return
        self._seen = seen
        try:
            found = read_endpoint_file(source).endpoints(lambda _: ())
        except ConfigError as error:
            self._say(f"{self.pool.name}: {error}; keeping {len(self.endpoints)} endpoints")
            return
        for problem in found.problems:
            self._say(f"{self.pool.name}: {problem}")
        endpoints = [(spec.address, spec.port) for spec in found.endpoints]
        if endpoints != self.endpoints and (endpoints or not found.problems):
            self.endpoints = endpoints
            self.write()

    async def follow(self) -> None:
        """Refresh for ever."""
        while True:
            self.refresh()
            await asyncio.sleep(POLL_S)
