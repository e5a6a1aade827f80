"""A session percept that became one with a global (M17) is known by its own id as well, until that is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept import DATE, Kept, bytes_in
from milk_client import wire
from milk_client.errors import NotFound
from world import World, check_invariants

from milkd import registry

SHORT, LONG = "User likes strong rye bread", "The user likes strong rye bread"


def merge(world: World) -> tuple[str, str]:
    """The global's id, and that of the session's percept that was merged into it."""
    world.attach("one", "one")
    world.attach("two", "two")
    older = world.say("one", SHORT, producer="user").percept.id
    newer = world.say("two", LONG, producer="user").percept.id
    world.turn("one")
    assert world.turn("two").promoted == 1
    assert older != newer and list(world.store.percepts) == [older]
    return older, newer


def shown(world: World, percept_id: str) -> str:
    return str(world.ask(wire.Show(target=percept_id)).percept.id)


@pytest.mark.parametrize("restarted", ["", "with files", "from the journal"])
def test_what_was_merged_is_found_by_either_id_over_a_restart_too(tmp_path: Path, restarted: str) -> None:
    world = Kept(tmp_path)
    older, newer = merge(world)
    if restarted == "with files":
        assert not world.files().error
    if restarted:
        world = world.again()
    assert shown(world, newer) == shown(world, newer[:8]) == shown(world, older) == older
    other = world.say("two", "Backups run at noon").percept.id
    edge = world.ask(wire.Link(source=newer, target=other, relation="extends")).edge
    assert edge.source == older
    check_invariants(world.store)


def test_a_retry_of_what_recorded_it_tells_the_percept_that_it_became() -> None:
    world = World({})
    world.attach("one", "one")
    world.attach("two", "two")
    asked = wire.Record(by="two", run="two", id=7, content=LONG, producer="user")
    first = world.ask(asked, "two").percept.id
    world.say("one", SHORT, producer="user")
    world.turn("one")
    world.turn("two")
    assert first not in world.store.percepts
    again = world.ask(asked, "two").percept
    assert again.id == world.store.merged[first] and len(world.store.percepts) == 1


def test_to_forget_it_is_to_forget_every_wording_and_both_ids_m20(tmp_path: Path) -> None:
    world = Kept(tmp_path)
    world.attach("two", "two")
    newer = world.say("two", LONG, producer="user").percept.id
    assert not world.files().error
    registry.set_aside(world.memory, "two.json", (world.memory / "two.json").read_bytes(), DATE)
    # What was set aside holds a wording that the one it became never had.
    world.ask(wire.Edit(target=newer, content="User likes strong rye bread"))
    world.attach("one", "one")
    older = world.say("one", "The user likes some strong rye bread", producer="user").percept.id
    world.turn("one")
    world.turn("two")
    assert world.store.merged == {newer: older}
    assert world.ask(wire.Forget(ids=[newer])).ids == [older]
    assert not world.files().error
    for name, data in bytes_in(tmp_path).items():
        assert b"rye" not in data, name
    with pytest.raises(NotFound):
        shown(world, newer)
    world = world.again()
    assert not world.store.percepts and not world.store.merged


@pytest.mark.parametrize("how", ["pin", "learn"])
def test_what_is_made_core_becomes_one_with_the_global_that_says_the_same_m20(how: str) -> None:
    world = World({})
    world.attach("one", "one")
    world.attach("two", "two")
    newer = world.say("two", LONG, producer="user").percept.id
    older = world.say("one", SHORT, producer="user").percept.id
    world.turn("one")
    if how == "pin":
        done = world.ask(wire.Pin(target=newer, session="two")).percept
    else:
        done = world.ask(wire.Record(session="two", content=LONG, core=True)).percept
    assert (done.core, done.w, done.scope) == (True, 1.0, "global")
    assert list(world.store.percepts) == [done.id] == [older]
    check_invariants(world.store)


def test_forget_names_what_a_merged_percept_had_superseded_m20() -> None:
    world = World({})
    world.attach("one", "one")
    world.attach("two", "two")
    old = world.say("two", "User likes white toast", producer="user").percept.id
    world.say("two", LONG, producer="user", replaces=old)
    older = world.say("one", SHORT, producer="user").percept.id
    world.turn("one")
    world.turn("two")
    assert list(world.store.percepts) == [older]
    assert world.ask(wire.Forget(ids=[older])).superseded == [old]


def test_a_merged_percept_that_came_back_is_forgotten_alone(tmp_path: Path) -> None:
    world = Kept(tmp_path)
    world.attach("two", "two")
    newer = world.say("two", LONG, producer="user").percept.id
    assert not world.files().error
    before = (world.memory / "two.json").read_bytes()
    world.attach("one", "one")
    older = world.say("one", SHORT, producer="user").percept.id
    world.turn("one")
    world.turn("two")
    assert not world.files().error
    (world.memory / "two.json").write_bytes(before)
    world = world.again()
    assert set(world.store.percepts) == {older, newer}
    assert world.ask(wire.Forget(ids=[newer])).ids == [newer]
    with pytest.raises(NotFound):
        world.ask(wire.Forget(ids=[newer]))
    assert list(world.store.percepts) == [older]
