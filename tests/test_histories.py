"""Any history at all, through the one door: what holds of the store at every moment (M9, M12, M17, M19)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from milk_client import wire
from milk_client.errors import Invalid, MilkError
from msgspec.structs import replace
from world import DAY_S, World, check_invariants, contents, file_of, replayed

from milkd import shapes
from milkd.cells import Effect
from milkd.edits import Edited
from milkd.rules.percept import GLOBAL, Now
from milkd.service import Checkpoint, Retune

RUNS = ("a", "b", "c", "d")
SESSIONS = {"a": "one", "b": "one", "c": "two", "d": "two"}
PROCESSES = {"a": "first", "b": "second", "c": "second", "d": "third"}
TEXTS = (
    "The user prefers tabs over spaces here",
    "The user prefers tabs over spaces",
    "The user does not prefer tabs over spaces",
    "Deploy on Friday evening after review",
    "Deploy on Friday evening after the second review",
    "Host is falcon",
    "Host is osprey",
    "Rows are kept in cold storage",
)
runs = st.sampled_from(RUNS)
texts = st.sampled_from(TEXTS)
picks = st.integers(0, 30)
producers = st.sampled_from(["user", "primary", "primary", "system"])


class Histories(RuleBasedStateMachine):
    """Requests of four runs in three processes and of a person, in any order, refused ones too."""

    @initialize(
        reinforcement=st.sampled_from(["restore", "restore", "add"]),
        global_max=st.sampled_from([2, 5000]),
        core_max=st.sampled_from([1, 200]),
    )
    def begin(self, reinforcement: str, global_max: int, core_max: int) -> None:
        self.world = World({"reinforcement": reinforcement, "global_max": global_max, "core_max": core_max})
        self.knobs = self.world.store.knobs
        self.effects: list[Effect] = []
        self.written: dict[str, Any] = {}
        for run in RUNS:
            self.attach(run)

    def attach(self, run: str) -> None:
        self.world.attach(run, SESSIONS[run], process=PROCESSES[run])

    def some_id(self, pick: int) -> str:
        """One of the ids there are, living or archived."""
        store = self.world.store
        ids = [*store.percepts, *store.archive]
        return ids[pick % len(ids)] if ids else "abcd"

    def ask(self, request: wire.Ask, run: str = "") -> Any:
        """A request; a refusal leaves everything as it was."""
        store = self.world.store
        before = contents(store)
        try:
            return self.world.ask(request, run)
        except MilkError:
            after = contents(store)
            # An ended run that came back, and time that passed, are no change of what is remembered.
            for what in ("percepts", "archive", "edges", "engrams"):
                assert after[what] == before[what], "a refusal changes nothing"
            return None

    @rule(
        run=runs,
        text=texts,
        producer=producers,
        core=st.sampled_from([False, False, False, True]),
        subject=st.sampled_from(["", "", "style", "hosts"]),
        consumer=st.sampled_from(["", "", "primary"]),
    )
    def record(self, run: str, text: str, producer: Any, core: bool, subject: str, consumer: Any) -> None:
        before = self.confirmed()
        more: dict[str, Any] = {"producer": producer, "core": core, "subject": subject, "consumer": consumer}
        self.ask(wire.Record(by=run, run=run, content=text, **more), run)
        for key, value in self.confirmed().items():
            assert value >= before.get(key, 0.0) - 1e-12, "a statement lowers no confirmed strength (M11)"

    @rule(run=runs, text=texts, pick=picks, how=st.sampled_from(["same_as", "replaces"]), producer=producers)
    def settle(self, run: str, text: str, pick: int, how: str, producer: Any) -> None:
        self.ask(wire.Record(by=run, run=run, content=text, producer=producer, **{how: self.some_id(pick)}), run)

    @rule(
        one=picks,
        other=picks,
        relation=st.sampled_from(["extends", "updates", "derives", "contradicts", "contradicts"]),
        supersede=st.sampled_from([False, False, True]),
        session=st.sampled_from(["", "one", "two"]),
    )
    def link(self, one: int, other: int, relation: Any, supersede: bool, session: str) -> None:
        ends = {"source": self.some_id(one), "target": self.some_id(other)}
        self.ask(wire.Link(**ends, relation=relation, supersede=supersede, session=session))

    @rule(one=picks, other=picks)
    def unlink(self, one: int, other: int) -> None:
        self.ask(wire.Unlink(source=self.some_id(one), target=self.some_id(other)))

    @rule(pick=picks)
    def forget(self, pick: int) -> None:
        chosen = self.some_id(pick)
        self.ask(wire.Forget(ids=[chosen]))
        store = self.world.store
        assert chosen not in store.percepts and chosen not in store.archive
        assert not any(chosen in (link.edge.source, link.edge.target) for link in store.links.values())

    @rule(pick=picks, what=st.sampled_from([wire.Pin, wire.Unpin, wire.Restore]), run=st.sampled_from(["", "a", "c"]))
    def change(self, pick: int, what: Any, run: str) -> None:
        self.ask(what(target=self.some_id(pick), by=run, run=run), run)

    @rule(pick=picks, text=texts, run=st.sampled_from(["", "a", "c"]))
    def edit(self, pick: int, text: str, run: str) -> None:
        self.ask(wire.Edit(target=self.some_id(pick), content=f"{text} as edited", by=run, run=run), run)

    @rule(run=runs, text=texts)
    def use(self, run: str, text: str) -> None:
        self.ask(wire.Get(by=run, run=run, query=text), run)
        self.ask(wire.Inject(by=run, run=run, prompt=text), run)

    @rule(run=runs)
    def turn(self, run: str) -> None:
        self.check_pass(lambda: self.world.turn(run))

    @rule(run=runs, back=st.booleans())
    def leave(self, run: str, back: bool) -> None:
        self.world.detach(run)
        if back:
            self.attach(run)

    @rule(session=st.sampled_from(["one", "two", ""]))
    def consolidate(self, session: str) -> None:
        self.check_pass(lambda: self.world.ask(wire.Consolidate(session=session)).report)

    def check_pass(self, run: Any) -> None:
        """What a pass may do to strength and evidence, by its report."""
        store = self.world.store
        before = dict(store.percepts)
        present = {key: store.present(held) for key, held in before.items()}
        confirmed = self.confirmed()
        report = run()
        ids = report.ids
        for key in ids.get("promoted", ()):
            held = store.percepts.get(key)
            if held is not None and held.scope == GLOBAL and before[key].scope != GLOBAL:
                expected = confirmed[key] if store.knobs.reinforcement == "restore" else present[key]
                moved = self.touched_by_edges(key)
                assert moved or store.present(held) >= expected - 1e-12, "a promotion does not decay in its own pass"
                assert store.idle_s(held) == 0.0
        for key, held in store.percepts.items():
            gained = held.record.evidence - before[key].record.evidence
            assert gained in (0, 1) or key in ids.get("promoted", ()) or held.scope == GLOBAL

    def touched_by_edges(self, key: str) -> bool:
        return bool(self.world.store.links_of(key))

    def confirmed(self) -> dict[str, float]:
        store = self.world.store
        return {key: store.confirmed(held) for key, held in store.percepts.items()}

    @rule(
        seconds=st.sampled_from([0.0, 1.0, 600.0, 3000.0]),
        times=st.integers(1, 40),
        wall_step=st.sampled_from([0.0, 0.0, DAY_S, -DAY_S]),
    )
    def time_passes(self, seconds: float, times: int, wall_step: float) -> None:
        store = self.world.store
        before = {key: store.present(held) for key, held in store.percepts.items()}
        self.world.advance(seconds, wall_step=wall_step)
        for _ in range(times):
            self.world.advance(seconds)
        for key, held in store.percepts.items():
            if key in before and not store.links_of(key):
                # A run that fell silent may have had its exit pass: what that promoted starts at its confirmed.
                if held.scope == GLOBAL and held.at_s > 0:
                    continue
                assert store.present(held) <= before[key] + 1e-12, "decay never raises"

    @rule(run=runs, minutes=st.sampled_from([1.0, 61.0]))
    def a_refused_request_after_silence(self, run: str, minutes: float) -> None:
        """Nobody swept meanwhile; the run and its sitting end and begin by the clock all the same (M5, M6)."""
        world = self.world
        now = world.now
        world.now = Now(now.wall + minutes * 60, now.mono + minutes * 60, now.boot + minutes * 60)
        before = world.store.clocks.runs.get(run)
        with pytest.raises(Invalid):
            world.ask(wire.Record(by=run, run=run, content="   "), run)
        self.world.advance(0.0)
        self.record(run, TEXTS[0], "primary", False, "", "")
        after = world.store.clocks.runs[run]
        assert minutes < 60 or before is None or after.began_at != before.began_at

    @rule(scope=st.sampled_from(["one", "two", GLOBAL]), data=st.data())
    def edit_by_hand(self, scope: str, data: st.DataObject) -> None:
        """A person changes a file at random; what no command may do is refused, and changes nothing."""
        store = self.world.store
        base = shapes.parse(file_of(store, scope))
        theirs = shapes.parse(file_of(store, scope))
        everywhere = [(held.record, held.extra) for held in store.percepts.values()]
        archived = [(gone.held.record, gone.held.extra) for gone in store.archive.values()]
        for _ in range(data.draw(st.integers(1, 3))):
            what = data.draw(st.sampled_from(["drop", "paste", "text", "core", "strength", "join", "engrams", "link"]))
            n = data.draw(picks)
            if what == "paste" and everywhere + archived:
                theirs.percepts.append((everywhere + archived)[n % len(everywhere + archived)])
            elif what == "link" and everywhere:
                ends = [everywhere[n % len(everywhere)][0].id, everywhere[n // 2 % len(everywhere)][0].id]
                if ends[0] != ends[1]:
                    theirs.edges.append((wire.Edge(*ends, data.draw(st.sampled_from(["extends", "contradicts"]))), {}))
            elif what == "engrams":
                theirs.engrams = theirs.engrams[n % 2 :]
            elif theirs.percepts:
                record, extra = theirs.percepts.pop(n % len(theirs.percepts))
                engrams = ["", "nowhere", *store.groups]
                fields: dict[str, Any] = {
                    "text": {"content": f"  {TEXTS[n % len(TEXTS)]} by hand "},
                    "core": {"core": not record.core},
                    "strength": {"w": (n % 11) / 10},
                    "join": {"engram_id": engrams[n % len(engrams)]},
                }.get(what, {})
                if what != "drop":
                    theirs.percepts.insert(0, (replace(record, **fields), extra))
        before = contents(store)
        try:
            self.world.apply(Edited(scope, theirs, base))
        except MilkError:
            assert contents(store) == before

    @rule()
    def files_are_written(self) -> None:
        """What is not marked as changed is as it was written the last time."""
        store = self.world.store
        held: dict[str, Any] = {
            name: (
                {i: store.percepts[i] for i in scope.living},
                {key: store.links[key] for key in scope.edges},
                {i: store.groups[i] for i in scope.engrams.values()},
            )
            for name, scope in store.scopes.items()
        }
        held["archive"] = {gone.held.id: (gone, links) for gone, links in store.archived_with_links()}
        for name in held.keys() - store.dirty:
            assert held[name] == self.written.get(name, held[name]), f"{name} has changed, and nobody wrote it"
        self.written = held
        store.dirty.clear()

    @precondition(lambda self: self.world.store.percepts)
    @rule(pick=picks)
    def a_failed_batch_leaves_no_trace(self, pick: int) -> None:
        store = self.world.store
        self.commit()
        before = contents(store)
        mark = store.mark()
        run = RUNS[pick % 4]
        self.world.say(run, f"A fact that will not be written x{pick}x")
        self.world.turn(run)
        self.world.ask(wire.Forget(ids=[self.some_id(pick)]))
        store.rollback(mark)
        after = contents(store)
        for what in ("percepts", "archive", "edges", "engrams", "event"):
            assert after[what] == before[what]

    @rule(
        half_life=st.sampled_from([1.0, 3.0]),
        prune=st.sampled_from([0.1, 0.2]),
        reinforcement=st.sampled_from(["restore", "add"]),
    )
    def retune(self, half_life: float, prune: float, reinforcement: Any) -> None:
        store = self.world.store
        before = {i: store.present(held) for i, held in store.percepts.items()}
        changed = replace(
            store.knobs, session_half_life_days=half_life, prune_threshold=prune, reinforcement=reinforcement
        )
        self.world.apply(Retune(changed))
        assert {i: store.present(held) for i, held in store.percepts.items()} == before, "knobs do not reach back"

    def commit(self) -> None:
        """What the journal would hold of it, kept."""
        self.world.apply(Checkpoint())
        self.effects += self.world.store.pending()
        self.world.store.committed()

    @invariant()
    def the_store_is_whole(self) -> None:
        if hasattr(self, "world"):
            check_invariants(self.world.store)
            store = self.world.store
            for held in store.percepts.values():
                assert 0.0 <= store.present(held) <= 1.0 and math.isfinite(store.idle_s(held))

    def teardown(self) -> None:
        """Effects alone make the same state again, and running no rule (design: the journal)."""
        if hasattr(self, "world"):
            self.commit()
            again = replayed(self.effects, self.knobs)
            assert again.knobs == self.world.store.knobs
            assert contents(again) == contents(self.world.store)
            check_invariants(again)


Histories.TestCase.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
TestHistories = Histories.TestCase
