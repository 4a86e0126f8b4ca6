"""Brings what the database says to the streams of workers, and what workers say to the database.

One loop looks at the change counter every ``POLL_S``; only when it has moved is what somebody subscribes to
read again, and only streams to whom that means something are woken. All work on the database runs in
one thread, one call at a time; what workers say is gathered in between and written together. A database that
cannot be reached stops none of it: streams keep what they have, and the loop tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from django.db import close_old_connections

from controlplane.core import changes, tokens
from controlplane.core.roles import Action, Actor, Channel
from controlplane.xds import resources, workers
from controlplane.xds.certificates import Certified
from controlplane.xds.metrics import XdsMetrics
from controlplane.xds.nodes import ALONE, Audience, NodeKind, worker_audience
from controlplane.xds.rules import RULES
from controlplane.xds.subscriptions import Answer, Snapshot, Subscriptions
from dataplane.xds.messages import Node

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_S: Final = 0.25
PRESENT_EVERY_S: Final = 10.0
"""How often workers that are there are noted, and their tokens looked at again."""
FORGET_EVERY_S: Final = 3600.0
SILENT_S: Final = 15.0
"""A database that takes longer counts as one that fails."""
MAX_GATHERED: Final = 50_000
"""Answers that wait for the database; beyond it the oldest are dropped, and said."""
KIND: Final = "Worker"


class Session:
    """One stream of one worker or Envoy. Owned by the event loop."""

    def __init__(
        self,
        node: Node,
        token: str,
        actor: Actor,
        kind: NodeKind = NodeKind.PICKER,
        certified: Certified | None = None,
    ) -> None:
        self.node = node
        self.token = token
        """Empty: a certificate stands in for it."""
        self.certified = certified
        self.actor = actor
        self.kind = kind
        self.audiences: set[Audience] = {Audience(kind, node.cluster)}
        """It is sent what all of these are sent."""
        self.subscriptions = Subscriptions(RULES.get(kind))
        self.wake = asyncio.Event()
        """Set when something may be due."""
        self.ended = ""
        """Why the server ends the stream; empty = it does not."""
        self.behind_since: float | None = None
        """When the oldest change was made that it may need and was not sent, by the monotonic clock."""

    def end(self, why: str) -> None:
        """Have the stream ended."""
        self.ended = why
        self.wake.set()


class Hub:
    """All streams of one server."""

    def __init__(self, metrics: XdsMetrics | None = None) -> None:
        self.metrics = metrics or XdsMetrics()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._sessions: dict[Audience, set[Session]] = {}
        self._snapshots: dict[Audience, Snapshot] = {}
        """What there is for each audience that has streams."""
        self._number = -1
        self._tokens_changed = 0
        """``tokens.last_change`` when streams were last looked at for it."""
        self._failing = False
        self._looked: float | None = None
        """When the database was last read, by the monotonic clock."""
        self._hurry = asyncio.Event()
        """Set when somebody waits for the loop's next round."""
        self._unread: set[Audience] = set()
        """What has to be read though nothing has changed."""
        self._joined: set[str] = set()
        """Workers that have subscribed to their configuration, until that is noted."""
        self._answers: list[tuple[str, Answer]] = []
        self._left: set[str] = set()
        self.metrics.watch(
            lambda: [session.kind for session in self.sessions],
            lambda: len(self._answers),
            lambda: max(0, self._number),
        )

    def not_ready(self) -> str:
        """Why no stream can begin; empty when they can."""
        if self._failing:
            return "the database fails"
        if self._looked is None:
            return "the database has not been read yet"
        silent = time.monotonic() - self._looked
        return f"the database has not answered for {silent:.0f} s" if silent > SILENT_S else ""

    async def in_database(self, call: Callable[[], T]) -> T:
        """What ``call`` returns, run in the database's thread."""

        def run() -> T:
            close_old_connections()
            return call()

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    @property
    def sessions(self) -> list[Session]:
        """All open streams."""
        return list({session for sessions in self._sessions.values() for session in sessions})

    async def recognise(self, token: str) -> Actor | None:
        """Whose token this is, if it may subscribe."""
        found = await self.in_database(lambda: tokens.recognise(token, Channel.AUTOMATION))
        return found[1] if found is not None and found[1].may(Action.FOLLOW, KIND) else None

    async def join(self, session: Session) -> None:
        """A stream begins."""
        node, user = session.node, session.actor.name
        await self.in_database(lambda: workers.arrived(node, user, session.kind))
        self._left.discard(node.id)
        for audience in session.audiences:
            self._sessions.setdefault(audience, set()).add(session)
        if missing := session.audiences - self._snapshots.keys():
            await self._refresh(frozenset(missing))
        session.wake.set()

    def heard(self, session: Session) -> None:
        """Rollouts wait for a worker that subscribes to its configuration, and it is sent what is its own."""
        own = worker_audience(session.node, session.kind)
        if own is None or own in session.audiences:
            return
        if not ALONE[session.kind][0] & session.subscriptions.types:
            return
        session.audiences.add(own)
        self._sessions.setdefault(own, set()).add(session)
        self._unread.add(own)
        self._joined.add(session.node.id)
        self._hurry.set()

    def leave(self, session: Session) -> None:
        """A stream is over; the last of an audience takes its snapshot along."""
        for audience in session.audiences:
            sessions = self._sessions.get(audience, set())
            sessions.discard(session)
            if not sessions:
                self._sessions.pop(audience, None)
                self._snapshots.pop(audience, None)
                self._unread.discard(audience)
        pool = self._sessions.get(Audience(session.kind, session.node.cluster), set())
        if not any(other.node.id == session.node.id for other in pool):
            self._left.add(session.node.id)

    def snapshots(self, session: Session) -> list[Snapshot]:
        """What there is for a stream now, but for what has not been read yet."""
        return [self._snapshots[each] for each in session.audiences if each in self._snapshots]

    def answered(self, session: Session, answer: Answer) -> None:
        """Keep what a worker said."""
        if len(self._answers) >= MAX_GATHERED:
            log.warning("the database takes no answers: %d are dropped", MAX_GATHERED // 2)
            del self._answers[: MAX_GATHERED // 2]
            self.metrics.dropped(MAX_GATHERED // 2)
        self._answers.append((session.node.id, answer))
        self.metrics.answered(answer.type_url, is_refusal=answer.refusal is not None)
        if answer.refusal is not None:
            log.warning("%s refused %s: %s", session.node.id, answer.version, answer.refusal.message)

    async def run(self) -> None:
        """Serve until cancelled."""
        began = noted = forgotten = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._hurry.wait()
            self._hurry.clear()
            now = time.monotonic()
            try:
                await self._write()
                await self._look()
                if now - noted >= PRESENT_EVERY_S:
                    noted = now
                    await self._note()
                    if now - began >= workers.SEEN_WITHIN.total_seconds():
                        # Not before workers had the time to come back: somebody may wait for them.
                        await self.in_database(workers.sweep)
                if now - forgotten >= FORGET_EVERY_S:
                    forgotten = now
                    await self.in_database(workers.forget)
            except Exception as error:  # whatever the matter is with the database, streams stay
                if not self._failing:
                    log.exception("the database fails; streams keep what they have: %s", error)
                self._failing = True
                self.metrics.failed()
                await asyncio.sleep(POLL_S)
            else:
                if self._failing:
                    log.info("the database answers again")
                self._failing = False
                self._looked = time.monotonic()

    async def stop(self) -> None:
        """Write what is left; that streams have ended with the server says nothing of their workers."""
        self._left.clear()
        try:
            await self._write()
        except Exception as error:  # the end of the process does not wait for the database
            log.exception("not everything workers said is kept: %s", error)
        self._thread.shutdown(wait=False)

    async def _look(self) -> None:
        """Read what has changed, if anything has, and what was not read before."""
        number = await self.in_database(changes.current)
        ahead = max((session.subscriptions.ahead for session in self.sessions), default=0)
        if ahead > number:
            log.warning("workers use version %d, the database is at %d: it goes on from there", ahead, number)
            await self.in_database(lambda: changes.raise_to(ahead))
        elif number == self._number:
            if self._unread:
                await self._refresh(frozenset(self._unread))
            return
        last = await self.in_database(tokens.last_change)
        if last != self._tokens_changed:
            await self._end_unheld()
            self._tokens_changed = last
        new = number - self._number
        waited = await self.in_database(lambda: changes.age(new)) if self._number >= 0 else None
        woken = await self._refresh(frozenset(self._sessions), waited)
        if woken:
            log.info("change %d: %d streams may need something", self._number, woken)

    async def _refresh(self, audiences: frozenset[Audience], waited: float | None = None) -> int:
        """Read what these are sent, and wake streams for which it may mean something; how many these are.

        ``waited`` is how long ago the oldest change was made that is new in it.
        """
        began = time.monotonic()
        number, built = await self.in_database(lambda: resources.build(audiences))
        self.metrics.built(time.monotonic() - began)
        if audiences.issuperset(self._sessions):
            self._number = number
        self._unread -= audiences
        woken = 0
        for audience, found in built.items():
            sessions, before = self._sessions.get(audience), self._snapshots.get(audience)
            if not sessions or (before is not None and before.number > number):
                continue
            self._snapshots[audience] = Snapshot(number, found)
            for session in sessions:
                if before is None or before.resources != found or session.subscriptions.ahead > before.number:
                    session.wake.set()
                    woken += 1
                    if waited is not None and session.behind_since is None:
                        session.behind_since = began - waited
        return woken

    async def _write(self) -> None:
        """Write who has come, what workers said, and who has left."""
        joined = self._joined
        if joined:
            self._joined = set()
            try:
                await self.in_database(lambda: workers.joined(joined))
            except BaseException:
                self._joined |= joined
                raise
        answers, left = self._answers, self._left
        if answers:
            self._answers = []
            try:
                await self.in_database(lambda: workers.answered(answers))
            except BaseException:
                self._answers[:0] = answers
                raise
        if left:
            self._left = set()
            await self.in_database(lambda: workers.left(left))

    async def _note(self) -> None:
        """Note who is there; tokens end with their time, too."""
        there = {session.node.id for session in self.sessions}
        await self.in_database(lambda: workers.present(there))
        await self.in_database(workers.prune)
        await self.in_database(changes.fold)
        await self._end_unheld()

    async def _end_unheld(self) -> None:
        """End the streams of tokens and certificates that hold no more."""
        for session in self.sessions:
            if session.certified is not None and not session.certified.holds:
                session.end("the time of the certificate is over")
        for token in {session.token for session in self.sessions if session.token}:
            if await self.recognise(token) is None:
                for session in self.sessions:
                    if session.token == token:
                        session.end("the token does not hold any more")
