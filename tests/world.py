"""The one door with clocks, chance and processes of the test's own: what the daemon is, without its edges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
from milk_client import wire
from milk_client.errors import UnknownRun

from milkd import shapes
from milkd.cells import CELL_TYPES, Effect, FileExtra
from milkd.clocks import Process
from milkd.config import Memory
from milkd.rules.percept import GLOBAL, Now
from milkd.runs import Sweep, watched
from milkd.service import Identity, Internal, Peer, Service
from milkd.store import Store

DAY_S = 86_400.0


class World:
    """A service with clocks and chance of its own."""

    def __init__(self, knobs: dict[str, Any]) -> None:
        given = {k: math.inf if v == "never" else v for k, v in knobs.items()}
        numbers = itertools.count(1)
        self.store = Store(Memory(**given))
        self.service = Service(
            self.store,
            Identity("0", 1, "/home", "boot", "ipc://events", wire.MAX_MESSAGE_BYTES),
            lambda: f"{next(numbers):08x}-0000-4000-8000-000000000000",
        )
        self.now = Now(1_700_000_000.0, 1000.0, 5000.0)
        self.processes: dict[str, Process] = {}
        self.sessions: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.made: dict[str, Process] = {}

    def ask(self, request: wire.Ask, run: str = "") -> Any:
        """One request, of a run's process or of nobody's; a run that is no longer known attaches anew."""
        peer = Peer((self.processes[run],) if run else ())
        try:
            return self.service.apply(request, self.now, peer)
        except UnknownRun:  # ended more than an hour ago: the client attaches again, as it would
            session = self.sessions[run]
            self.service.apply(wire.Attach(by=run, run=run, session=session, protocol=wire.PROTOCOL), self.now, peer)
            return self.service.apply(request, self.now, peer)

    def advance(self, seconds: float, *, wall_step: float = 0.0) -> None:
        """Time passes while every process lives; the wall clock may be set besides."""
        now = self.now
        self.now = Now(now.wall + seconds + wall_step, now.mono + seconds, now.boot + seconds)
        self.apply(Sweep(watched(self.store)))

    def apply(self, request: Internal) -> None:
        """Something from within the daemon: a sweep, a config, a checkpoint."""
        self.service.apply(request, self.now, Peer())

    def attach(self, run: str, session: str, *, process: str = "", role: str = "primary") -> None:
        """A run begins, in a process of its own or in one that others share."""
        name = process or run
        self.processes[run] = self.made.setdefault(name, Process(1001 + len(self.made), 1, "boot"))
        self.sessions[run] = session
        self.ask(wire.Attach(by=run, run=run, session=session, role=role, protocol=wire.PROTOCOL), run)

    def say(self, run: str, content: str, **more: Any) -> Any:
        """A run records something."""
        return self.ask(wire.Record(by=run, run=run, content=content, **more), run)

    def turn(self, run: str) -> wire.Report:
        """A run's turn ends: the report of its pass."""
        report: wire.Report = self.ask(wire.Turn(by=run, run=run), run).report
        return report

    def detach(self, run: str) -> None:
        """A run ends."""
        self.ask(wire.Detach(by=run, run=run), run)


def replayed(effects: list[Effect], knobs: Memory) -> Store:
    """A store made of effects alone, each through the bytes that the journal would hold."""
    store = Store(knobs)
    for table, key, value in effects:
        raw = msgspec.msgpack.encode(value)
        kind = CELL_TYPES[table]
        store.replay([(table, key, None if value is None else msgspec.msgpack.decode(raw, type=kind))])
    return store


def contents(store: Store) -> dict[str, Any]:
    """All that a store holds, to compare two of them."""
    return {
        "percepts": dict(sorted(store.percepts.items())),
        "archive": dict(sorted(store.archive.items())),
        "edges": dict(sorted(store.links.items())),
        "engrams": dict(sorted(store.groups.items())),
        "runs": dict(sorted(store.clocks.runs.items())),
        "sittings": dict(sorted(store.clocks.sittings.items())),
        "clocks": store.clocks.readings(),
        "event": store.event,
        "merged": dict(sorted(store.merged.items())),
    }


def check_invariants(store: Store) -> None:
    """What holds of a store at every moment, whatever happened: the derived tells of the stored."""
    assert set(store.clocks.heard) == {i for i, run in store.clocks.runs.items() if run.live}, (
        "who lives is listened to"
    )
    assert not store.percepts.keys() & store.archive.keys(), "every id stands in exactly one place"
    for name, scope in store.scopes.items():
        living = {i for i, held in store.percepts.items() if held.scope == name}
        assert set(scope.living) == living, f"the index of {name} holds its living percepts"
        assert set(scope.archived) == {i for i, gone in store.archive.items() if gone.held.scope == name}
        assert (set(scope.born), set(scope.let_go)) == (living, set(scope.archived)), "pages hold what there is"
        assert set(scope.groups) == {i for i, group in store.groups.items() if group.scope == name}
        assert store.living_count(name) == sum(store.lives(store.percepts[i]) for i in living)
        assert scope.core == {i for i in living if store.percepts[i].record.core}
        fading = [store.percepts[i] for i in living if not store.percepts[i].record.core]
        if name == GLOBAL:
            fading = [held for held in fading if held.record.w > store.knobs.prune_threshold]
        assert scope.fading == len(fading)
        slots = {scope.living.slot(i) for i in living}
        assert set(scope.ranks.slots().tolist()) == slots and len(slots) == len(living)
    assert {held.scope for held in store.percepts.values()} <= store.scopes.keys()
    for successor in {gone.successor for gone in store.archive.values()} - {""}:
        named = {i for i, gone in store.archive.items() if gone.successor == successor}
        assert set(store.superseded_by(successor)) == named
    for link in store.links.values():
        ends = (link.edge.source, link.edge.target)
        assert all(end in store.percepts or end in store.archive for end in ends), "every edge has both ends"
        living = [store.percepts[end].scope for end in ends if end in store.percepts]
        in_force = len(living) == 2
        places = [name for name, scope in store.scopes.items() if link.key in scope.edges]
        sessions = {scope for scope in living if scope != GLOBAL}
        assert len(sessions) <= 1, "no edge joins two sessions"
        assert places == ([sessions.pop() if sessions else GLOBAL] if in_force else []), "edges follow their ends"
        assert (link.key in store.contradictions) == (in_force and link.edge.relation == "contradicts")
    for held in store.percepts.values():
        record = held.record
        assert 0.0 <= record.w <= 1.0 and record.w_confirmed is not None and 0.0 <= record.w_confirmed <= 1.0
        assert math.isfinite(held.at_s) and record.evidence >= 0
        if record.engram_id:
            group = store.groups[record.engram_id]
            assert group.scope == held.scope, "an engram and its members share a scope"


def file_of(store: Store, scope: str) -> bytes:
    """A scope's file as it would be written now."""
    held = store.scope(scope)
    parts = [
        ("percepts", [shapes.percept_json(store, store.percepts[i], 2) for i in held.living]),
        ("engrams", [shapes.engram_json(store, store.groups[i], store.members(i), 2) for i in held.engrams.values()]),
        ("edges", [shapes.edge_json(store.links[key], 2) for key in sorted(held.edges)]),
    ]
    own = shapes.Own(generation=1, clock_s=store.clocks.reading(scope))
    return b"".join(shapes.document(parts, own, store.files.get(scope, FileExtra())))
