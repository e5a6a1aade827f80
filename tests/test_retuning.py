"""Other knobs hold from now on: what has faded until then did so under the old ones, however they came in (M9).

A config may be read anew by a running daemon, or be another one at the next start, after a stop or a crash.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import pytest
from faults import broken
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import Kept, view
from msgspec.structs import replace
from world import DAY_S, World, check_invariants

from milkd.config import Memory
from milkd.rules import weight
from milkd.rules.percept import GLOBAL
from milkd.service import Checkpoint, Retune

OTHERS: list[dict[str, Any]] = [
    {"session_half_life_days": 0.5},
    {"global_half_life_days": 1.0},
    {"prune_threshold": 0.1},
    {"reinforcement": "add"},
]
ALWAYS: dict[str, Any] = {"run_idle_after_minutes": math.inf}
"""Runs of these tests are silent for days."""
Way = Literal["reload", "reload and crash", "stop and start", "crash and start"]
WAYS: list[Way] = ["reload", "reload and crash", "stop and start", "crash and start"]


def lived_in(root: Path) -> Kept:
    """A home with what fades: in a session, in the global scope and in the archive; some of it not yet in a file."""
    world = Kept(root, **ALWAYS)
    world.attach("r", "s")
    world.say("r", "The user likes rye bread", producer="user")
    world.say("r", "Never commit secrets", producer="user", core=True)
    world.advance(0.2 * DAY_S)
    world.turn("r")
    host = world.say("r", "Host is falcon").percept.id
    world.say("r", "Host is osprey", replaces=host)
    world.advance(0.3 * DAY_S)
    assert not world.files().error
    world.say("r", "Backups run at noon")
    world.advance(0.1 * DAY_S)
    world.apply(Checkpoint())
    return world


def changed_to(world: Kept, way: Way, **knobs: Any) -> Kept:
    """The same home with other knobs, and the daemon up."""
    if way in ("reload", "reload and crash"):
        world.apply(Retune(replace(world.store.knobs, **knobs)))
        if way == "reload":
            return world
    if way == "stop and start":
        assert not world.files().error
    world.die()
    again = Kept(world.home.root, after=world, **ALWAYS, **knobs)
    again.attach("r", "s")
    return again


def strengths(world: Kept) -> dict[str, float]:
    """Of all that live or are archived, as of now."""
    store = world.store
    return {
        held.id: store.present(held) for held in [*store.percepts.values(), *(g.held for g in store.archive.values())]
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("knobs", OTHERS, ids=lambda knobs: next(iter(knobs)))
def test_other_knobs_hold_from_then_on_and_change_no_strength_of_now(
    tmp_path: Path, way: Way, knobs: dict[str, Any]
) -> None:
    world = lived_in(tmp_path / "home")
    before = strengths(world)
    world = changed_to(world, way, **knobs)
    assert strengths(world) == pytest.approx(before, abs=1e-9)
    check_invariants(world.store)

    world.advance(0.5 * DAY_S)
    under = Memory(**knobs)
    for percept_id, held in world.store.percepts.items():
        w = before[percept_id]
        faded = w if held.record.core else weight.decayed(w, 0.5 * DAY_S, under, is_global=held.scope == GLOBAL)
        assert world.store.present(held) == pytest.approx(faded, abs=1e-9)
    world.apply(Checkpoint())
    stood = strengths(world)
    for _ in range(2):  # with the change in the journal alone, and in the files
        world = changed_to(world, "crash and start", **knobs)
        assert strengths(world) == pytest.approx(stood, abs=1e-9)
        assert not world.files().error


def test_knobs_that_cannot_be_written_down_change_nothing_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = lived_in(tmp_path / "home")
    before, knobs = view(world.store), world.store.knobs
    with monkeypatch.context() as full:
        full.setattr("milkd.journal._sync", broken)
        with pytest.raises(OSError):
            world.apply(Retune(replace(knobs, session_half_life_days=0.5)))
    assert view(world.store) == before and world.store.knobs == knobs
    check_invariants(world.store)
    world.advance(0.1 * DAY_S)
    world.apply(Retune(replace(knobs, session_half_life_days=0.5)))
    assert world.store.knobs.session_half_life_days == 0.5


def test_knobs_that_changed_before_any_file_was_written_do_not_reach_back(tmp_path: Path) -> None:
    world = Kept(tmp_path, **ALWAYS)
    world.attach("r", "s")
    world.say("r", "Backups run at noon")
    world.advance(DAY_S)
    world.apply(Checkpoint())
    before = strengths(world)
    world = changed_to(world, "crash and start", session_half_life_days=0.5)
    assert strengths(world) == pytest.approx(before, abs=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_what_has_faded_does_not_come_back_by_a_lower_threshold_m9(tmp_path: Path, way: Way) -> None:
    world = Kept(tmp_path, **ALWAYS)
    world.attach("r", "s")
    faded = world.say("r", "Backups run at noon").percept.id
    world.say("r", "The user likes rye bread", producer="user")
    world.advance(6 * DAY_S)
    world.apply(Checkpoint())
    assert not world.store.lives(world.store.percepts[faded])
    world = changed_to(world, way, prune_threshold=0.05)
    assert faded not in world.store.percepts and world.store.archive[faded].reason == "pruned"
    assert len(world.store.percepts) == 1
    check_invariants(world.store)


steps = st.lists(
    st.tuples(st.floats(0.01, 3.0), st.sampled_from([0.5, 3.0, 20.0]), st.sampled_from([0.1, 0.2, 0.3])),
    min_size=1,
    max_size=6,
)


@given(steps=steps, is_global=st.booleans())
@settings(deadline=None)
def test_each_stretch_fades_under_the_knobs_of_its_time_m10(
    steps: list[tuple[float, float, float]], is_global: bool
) -> None:
    world = World(ALWAYS)
    world.attach("r", "s")
    found = world.say("r", "The user likes rye bread", producer="user").percept
    if is_global:
        world.turn("r")
    expected = found.w
    for days, half_life, prune in steps:
        world.advance(days * DAY_S)
        expected = weight.decayed(expected, days * DAY_S, world.store.knobs, is_global=is_global)
        world.apply(
            Retune(
                replace(
                    world.store.knobs,
                    session_half_life_days=half_life,
                    global_half_life_days=half_life,
                    prune_threshold=prune,
                )
            )
        )
        assert world.store.present(world.store.percepts[found.id]) == pytest.approx(expected, abs=1e-9)
