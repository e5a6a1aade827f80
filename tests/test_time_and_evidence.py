"""Running time, chattiness and evidence against plain models of the rules (M5, M6, M10, M12)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from milk_client import wire
from world import DAY_S, World

from milkd.clocks import Process
from milkd.rules.percept import GLOBAL, Now
from milkd.runs import Sweep, watched
from milkd.service import Service

FACT = "The build needs the blue compiler flag"
RUNS = ("a", "b", "c")
NOTHING = ("pruned", "archived", "promoted", "evicted")

# ---------------------------------------------------------------- M10


steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(RUNS), st.integers(0, 5)),
        st.tuples(st.just("use"), st.sampled_from(RUNS), st.integers(0, 5)),
        st.tuples(st.just("link"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("turn"), st.sampled_from(RUNS), st.just(0)),
        st.tuples(st.just("again"), st.sampled_from(RUNS), st.just(0)),
        st.tuples(st.just("time"), st.sampled_from([1.0, 60.0, 3500.0]), st.just(0)),
    ),
    max_size=40,
)
CONTENTS = [f"Fact number x{n}x about item y{n}y" for n in range(6)]


def moved(world: World) -> int:
    """How often edges have acted."""
    return sum(link.edge.propagated for link in world.store.links.values())


def play(history: list[Any], extra: set[int]) -> tuple[World, bool]:
    """A history with passes put in before some steps; whether those passes only looked."""
    world = World({})
    quiet = True
    for run in RUNS:
        world.attach(run, "here")
    for number, (what, one, other) in enumerate(history):
        if number in extra:
            before = moved(world)
            report = world.ask(wire.Consolidate(session="here")).report
            quiet = quiet and moved(world) == before and not any(getattr(report, name) for name in NOTHING)
        if what == "say":
            world.say(one, CONTENTS[other], producer="user" if other == 0 else "primary")
        elif what == "use":
            world.ask(wire.Get(by=one, run=one, query=CONTENTS[other]), one)
        elif what == "link":
            ids = sorted(world.store.percepts)
            if len(ids) > max(one, other) and one != other:
                world.ask(wire.Link(source=ids[one], target=ids[other], relation="extends", session="here"))
        elif what == "turn":
            world.turn(one)
        elif what == "again":
            world.detach(one)
            world.attach(one, "here", process=f"{one} at step {number}")
        else:
            world.advance(one)
    return world, quiet


@settings(max_examples=200, deadline=None)
@given(steps, st.sets(st.integers(0, 39), max_size=12))
def test_passes_put_in_or_left_out_change_no_number(history: list[Any], where: set[int]) -> None:
    """M10: `w`, `w_confirmed`, evidence and idle time are the same however often somebody looked."""
    plain, _ = play(history, set())
    chatty, quiet = play(history, where)
    assume(quiet)
    assert plain.store.percepts.keys() == chatty.store.percepts.keys()
    for key, held in plain.store.percepts.items():
        other = chatty.store.percepts[key]
        assert plain.store.present(held) == pytest.approx(chatty.store.present(other), abs=1e-12)
        assert plain.store.confirmed(held) == pytest.approx(chatty.store.confirmed(other), abs=1e-12)
        assert held.record.evidence == other.record.evidence
        assert plain.store.idle_s(held) == pytest.approx(chatty.store.idle_s(other), abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.001, 500.0), min_size=1, max_size=30), st.lists(st.booleans(), min_size=30, max_size=30))
def test_an_edge_acts_once_a_sitting_however_many_passes_there_are(pauses: list[float], passes: list[bool]) -> None:
    """M13 with M10: the first pass moves it, and no later one of the same sitting does."""
    world = World({})
    world.attach("a", "here")
    one = world.say("a", CONTENTS[0]).percept.id
    other = world.say("a", CONTENTS[1]).percept.id
    world.ask(wire.Link(source=one, target=other, relation="extends", session="here"))
    world.turn("a")
    for pause, turns in zip(pauses, passes, strict=False):
        world.advance(pause)
        if turns:
            world.turn("a")
    held = world.store.percepts[other]
    assert world.store.confirmed(held) == pytest.approx(0.75)
    assert held.record.evidence == 1
    assert world.store.links_of(other)[0].edge.propagated == 1


# ---------------------------------------------------------------- M12

moves = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "attach", "detach", "die", "silence", "restart", "wall", "turn", "time"]),
        st.integers(0, 4),
        st.sampled_from([0.5, 30.0, 1800.0]),
    ),
    max_size=60,
)


class Evidence:
    """What M5 and M12 say of one fact, told in the plainest way: sittings are numbered by their beginning."""

    def __init__(self) -> None:
        self.clock = 0
        self.sitting: dict[str, int] = {}
        self.last = -1
        self.evidence = 0
        self.stated = False

    def attach(self, process: str) -> None:
        self.clock += 1
        self.sitting.setdefault(process, self.clock)

    def gone(self, process: str) -> None:
        self.sitting.pop(process, None)

    def say(self, process: str) -> None:
        self.attach(process)
        self.clock += 1
        if self.stated and self.sitting[process] > self.last:
            self.evidence += 1
            self.last = self.clock
        self.stated = True


@settings(max_examples=300, deadline=None)
@given(moves)
def test_evidence_counts_sittings_begun_after_the_last_corroboration(history: list[Any]) -> None:
    """M12 under overlapping sittings, reconnects, deaths, silence, daemon restarts and steps of the wall clock."""
    world = World({"session_half_life_days": 1000.0, "run_idle_after_minutes": 60.0})
    model = Evidence()
    generation = dict.fromkeys(range(5), 0)
    for what, who, seconds in history:
        process = f"process {who} life {generation[who]}"
        run = f"run {who} {generation[who]}"
        if what in ("say", "attach"):
            world.attach(run, "here", process=process)
            model.attach(process)
        if what == "say":
            world.say(run, FACT)
            model.say(process)
        elif what == "detach" and run in world.sessions:
            world.detach(run)
            # A request of an ended run begins a new one (M5), so the sitting is open after it at any rate.
            model.attach(process)
        elif what == "die" and process in model.sitting:
            die(world, process)
            model.gone(process)
            generation[who] += 1
        elif what == "silence":
            world.advance(3601.0)
            model.sitting = {p: s for p, s in model.sitting.items() if not ended_by_silence(world, p)}
        elif what == "restart":
            restart(world)
        elif what == "wall":
            world.advance(0.0, wall_step=DAY_S if who % 2 else -DAY_S)
        elif what == "turn" and process in model.sitting and live(world, run):
            world.turn(run)
        elif what == "time" and seconds < 3600.0:
            for other in list(model.sitting):
                keep_alive(world, other)
            world.advance(seconds)
    found = [held for held in world.store.percepts.values() if held.record.content == FACT]
    assert len(found) == (1 if model.stated else 0)
    if found:
        assert found[0].record.evidence == model.evidence


def live(world: World, run: str) -> bool:
    known = world.store.clocks.runs.get(run)
    return known is not None and known.live


def die(world: World, process: str) -> None:
    dead = world.made[process]
    world.apply(Sweep(watched(world.store) - {dead}, dead=frozenset({dead})))


def ended_by_silence(world: World, process: str) -> bool:
    open_ones = [s for s in world.store.clocks.sittings.values() if s.process == world.made[process] and not s.closed]
    return not open_ones


def keep_alive(world: World, process: str) -> None:
    for run, owner in world.processes.items():
        if owner == world.made[process] and live(world, run):
            world.ask(wire.Get(by=run, run=run, query="zzz"), run)


def restart(world: World) -> None:
    """The daemon goes and comes back: the same cells, another boot of the clocks' origin is not there."""
    world.store.clocks.restart()
    world.service = Service(world.store, world.service.identity, world.service.new_id)


# ---------------------------------------------------------------- M6

spans = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["start", "stop", "pause", "go"]), st.floats(0.0, 50.0)), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(spans, st.lists(st.sampled_from([0.0, DAY_S, -DAY_S]), min_size=40, max_size=40))
def test_clocks_are_unions_of_live_intervals(history: list[Any], steps: list[float]) -> None:
    """M6: side by side counts once, nobody there not at all, stopped not meanwhile, the wall clock never.

    Sessions: runs 0 and 1 are of one, run 2 of the other.
    """
    world = World({})
    alive: dict[int, bool] = {}
    expected = {GLOBAL: 0.0, "one": 0.0, "two": 0.0}
    for (who, what, seconds), wall_step in zip(history, steps, strict=False):
        run, session = f"r{who}", "two" if who == 2 else "one"
        if what == "start":
            if who not in alive:
                world.attach(run, session, process=f"{who} at {len(world.made)}")
                alive[who] = True
        elif what == "stop":
            if alive.pop(who, None) is not None:
                world.detach(run)
        elif who in alive:
            alive[who] = what == "go"
        running = {"two" if w == 2 else "one" for w, going in alive.items() if going}
        for name in [*running, *([GLOBAL] if running else [])]:
            expected[name] += seconds
        stopped = frozenset(world.processes[f"r{w}"] for w, going in alive.items() if not going)
        sweep(world, stopped)
        pass_time(world, seconds, wall_step, stopped)
    readings = world.store.clocks.readings()
    for name, value in expected.items():
        assert readings.get(name, 0.0) == pytest.approx(value, abs=1e-6), name


def sweep(world: World, stopped: frozenset[Process]) -> None:
    world.apply(Sweep(watched(world.store) - stopped, stopped=stopped))


def pass_time(world: World, seconds: float, wall_step: float, stopped: frozenset[Process]) -> None:
    now = world.now
    world.now = Now(now.wall + seconds + wall_step, now.mono + seconds, now.boot + seconds)
    sweep(world, stopped)
