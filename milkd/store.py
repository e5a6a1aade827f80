"""The one owner of what is remembered. Every change is a cell put or dropped.

``put`` is the only way in, for a request, for the undo of a failed batch, for the replay of the journal and
for the load of the files alike; it sets the cell (`tables.py`, which keeps what is derived true), and notes it
for undo and as an effect for the journal.

Some cells only flow (use marks, pass marks, who was seen): ``lazy`` ones wait for the next effect that must be on
disk, in order, or for a checkpoint; nobody waits for them (M7, M21).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from milk_client.wire import Event
from msgspec.structs import replace

from milkd.cells import Effect, PassMark, Table
from milkd.clocks import Heard
from milkd.config import Memory
from milkd.rules.percept import GLOBAL
from milkd.tables import Tables

Mark = tuple[int, int, int, int, int]
"""A point to roll back to."""


class Store(Tables):
    """What is remembered. All methods are for the core thread."""

    def __init__(self, knobs: Memory) -> None:
        super().__init__(knobs)
        self.event = 0
        self.events: list[Event] = []
        self.erased: list[tuple[str, str]] = []
        self._undo: list[tuple[Table | Literal["heard", "fading"], str, Any]] = []
        self._effects: list[Effect] = []
        self._lazy: dict[tuple[str, str], Any] = {}
        self._written_clocks: dict[str, float] = {}

    # ------------------------------------------------------------ transactions

    def mark(self) -> Mark:
        """A point to roll back to."""
        return len(self._undo), len(self._effects), len(self.events), len(self.erased), self.event

    def rollback(self, mark: Mark) -> None:
        """Take back every change since ``mark``, newest first."""
        undo, effects, events, erased, event = mark
        del self.events[events:]
        del self.erased[erased:]
        while len(self._undo) > undo:
            table, key, old = self._undo.pop()
            if table == "clock":
                self.clocks.set_reading(key, old)
                continue
            if table == "heard":
                self.clocks.put_heard(key, old)
                continue
            if table == "fading":
                knobs, self.percepts, self.archive = old
                self._derive_anew(knobs)
                continue
            self._set(table, key, old)
            if (table, key) in self._lazy:
                self._lazy[table, key] = old
        # Lazy cells of earlier requests may have been flushed among these effects: what is cut off is
        # written down again with the value that its cell now has.
        for name, key, value in self._effects[effects:]:
            if name == "fading":
                continue
            if name == "use":
                held = self.percepts.get(key)
                if held is not None:
                    self._lazy.setdefault((name, key), (held.idle_from_s, held.record.last_used_at))
            elif name in ("heard", "clock"):
                self._lazy.setdefault((name, key), value)
            else:
                self._lazy.setdefault((name, key), self._get(name, key))  # type: ignore[arg-type]
        del self._effects[effects:]
        self.event = event

    def must_sync(self) -> bool:
        """Whether something changed that an answer has to wait for."""
        return bool(self._effects)

    def pending(self) -> list[Effect]:
        """All effects since the last commit, in order, ending with the clocks that moved (M7)."""
        self._flush_lazy()
        effects = list(self._effects)
        for scope, seconds in self.clocks.readings().items():
            if self._written_clocks.get(scope) != seconds:
                effects.append(("clock", scope, seconds))
        if effects:
            effects.append(("meta", "event", float(self.event)))
        return effects

    def committed(self) -> None:
        """The pending effects are on disk: nothing of them can be taken back any more."""
        self._written_clocks = self.clocks.readings()
        self._effects.clear()
        self._undo.clear()

    def settled(self) -> bool:
        """Whether nothing waits to be written, lazily or not."""
        return not self._effects and not self._lazy

    def next_event(self) -> int:
        """The number of the attach, change or pass that now happens (M5)."""
        self.event += 1
        return self.event

    def next_seq(self) -> int:
        """The order of birth of a percept or an edge."""
        self._seq += 1
        return self._seq

    def put(self, table: Table, key: str, value: Any) -> None:
        """Set a cell; None drops it."""
        old = self._get(table, key)
        self._flush_lazy()
        self._set_with_a_way_back(table, key, old, value)
        self._effects.append((table, key, value))

    def _set_with_a_way_back(self, table: Table, key: str, old: Any, value: Any) -> None:
        if table == "run":  # when it was heard is no cell, and goes with the run
            heard = self.clocks.heard.get(key)
            self._undo.append(("heard", key, heard.request_boot if heard else None))
        self._set(table, key, value)
        self._undo.append((table, key, old))

    def put_quietly(self, table: Table, key: str, value: Any) -> None:
        """Set a cell that is on disk already: no effect, no undo (load)."""
        self._set(table, key, value)

    def settle(self) -> None:
        """After load and replay: nothing counts as just touched; scopes without a mark begin here (M18)."""
        self.clocks.restart()
        self._undo.clear()
        self._written_clocks = self.clocks.readings()
        for merged, into in list(self.merged.items()):
            if into not in self.percepts and into not in self.archive:  # taken out of a file while no daemon ran
                self._set("merged", merged, None)
        for scope in self.scopes.values():
            scope.touched.clear()
            if scope.name not in self.marks:
                self.marks[scope.name] = PassMark(self.clocks.reading(scope.name), "")

    def put_lazy(self, table: Table, key: str, value: Any) -> None:
        """Set a cell that no answer waits for; coalesced by key."""
        old = self._get(table, key)
        self._set_with_a_way_back(table, key, old, value)
        self._lazy.pop((table, key), None)
        self._lazy[table, key] = value

    def use(self, percept_id: str, wall_stamp: str) -> None:
        """A percept was recalled or injected: idle 0 (M21). Coalesced, never waited for."""
        clock = self.clocks.reading(GLOBAL)
        self._mark_used(percept_id, clock, wall_stamp)
        self._lazy.pop(("use", percept_id), None)
        self._lazy["use", percept_id] = (clock, wall_stamp)

    def drop_session(self, name: str) -> None:
        """A session whose percepts have all gone elsewhere is no more."""
        self._undo.append(("clock", name, self.clocks.reading(name)))
        self.clocks.drop_reading(name)
        self.scopes.pop(name, None)
        self._effects.append(("clock", name, None))
        self._written_clocks.pop(name, None)
        self.dirty.add(name)

    def note_fading(self) -> None:
        """Write down under which knobs strengths fade, with the next record: nothing on disk tells it yet."""
        self._effects.append(("fading", "", self.knobs.fading))

    def retune(self, knobs: Memory) -> None:
        """Other knobs are in force from now on (section 6)."""
        if knobs.fading != self.knobs.fading:
            self._flush_lazy()  # what waits holds under the old ones
            # The point that all strengths move to, for a replay too.
            self._effects += [("clock", scope, seconds) for scope, seconds in self.clocks.readings().items()]
            self._effects.append(("fading", "", knobs.fading))
            self._undo.append(("fading", "", (self.knobs, dict(self.percepts), dict(self.archive))))
        if knobs != self.knobs:
            self._retune(knobs)

    def replay(self, effects: Iterable[Effect]) -> None:
        """Bring cells to what the journal says; runs no rule."""
        for table, key, value in effects:
            if table == "use":
                if key in self.percepts:
                    self._mark_used(key, value[0], value[1])
            elif table == "clock":
                if value is None:
                    self.clocks.drop_reading(key)
                    self.scopes.pop(key, None)
                    self.dirty.add(key)
                else:
                    self.clocks.set_reading(key, value)
            elif table == "heard":
                run = self.clocks.runs.get(key)
                if run is not None and run.live:
                    self.clocks.heard.setdefault(key, Heard(value)).request_boot = value
            elif table == "fading":
                self._retune(self.knobs.under(value))
            elif table == "meta" and key == "event":
                self.event = max(self.event, int(value))
            else:
                self._set(table, key, value)  # type: ignore[arg-type]

    def note_heard(self) -> None:
        """Write down when each live run was last heard (silence goes on over a restart, M6)."""
        for run_id in self.clocks.heard:
            self.note_heard_of(run_id)

    def note_heard_of(self, run_id: str) -> None:
        """Write down when a live run was last heard: after the run itself, so that a replay knows whom it means."""
        self._lazy.pop(("heard", run_id), None)
        self._lazy["heard", run_id] = self.clocks.heard[run_id].request_boot

    def _flush_lazy(self) -> None:
        if self._lazy:
            self._effects.extend((table, key, value) for (table, key), value in self._lazy.items())
            self._lazy.clear()

    def _mark_used(self, percept_id: str, clock: float, wall_stamp: str) -> None:
        held = self.percepts.get(percept_id)
        if held is not None:
            record = replace(held.record, last_used_at=wall_stamp)
            self.percepts[percept_id] = replace(held, record=record, idle_from_s=clock)
            self.dirty.add(held.scope)
