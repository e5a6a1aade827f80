"""A change asked twice acts once, and its outcome is remembered until it is acknowledged, not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milk_client import wire
from milk_client.errors import Invalid, MilkError, Overloaded
from world import World, contents

from milkd.service import UNACKNOWLEDGED_MAX

FACTS = ("Builds of harbour need gcc 13", "The queue of harbour drains at night", "Tests of orchard need postgres")


def a_world() -> World:
    """A run with three facts and an edge."""
    world = World({})
    world.attach("r", "s")
    for fact in FACTS:
        world.say("r", fact)
    source, target, _ = world.store.percepts
    world.ask(wire.Link(by="r", run="r", source=source, target=target, relation="extends"), "r")
    return world


def changes(world: World) -> list[wire.Ask]:
    """One change of each kind that a run may ask for."""
    one, two, three = world.store.percepts
    common: dict[str, Any] = {"by": "r", "run": "r"}
    return [
        wire.Record(content="Deploys of harbour wait for review", **common),
        wire.Record(content=FACTS[0], **common),
        wire.Record(content="Builds of harbour need clang 18", replaces=one, **common),
        wire.Record(content="Never commit secrets", core=True, producer="user", **common),
        wire.Edit(target=two, content="The queue of harbour drains at noon", **common),
        wire.Pin(target=two, **common),
        wire.Unpin(target=two, **common),
        wire.Link(source=two, target=three, relation="contradicts", **common),
        wire.Unlink(source=one, target=two, **common),
        wire.Forget(ids=[three], **common),
        wire.Turn(**common),
        wire.Consolidate(**common),
        wire.Detach(**common),
        wire.RenameSession(old="s", new="t", **common),
    ]


@given(st.lists(st.integers(0, 13), min_size=1, max_size=5), st.integers(1, 3))
def test_a_change_asked_again_acts_once_and_has_the_same_answer(picks: list[int], times: int) -> None:
    world = a_world()
    kinds = changes(world)
    for number, pick in enumerate(picks, 1):
        request = kinds[pick]
        request.id = number
        request.ack = number
        try:
            answer = world.ask(request, "r")
        except MilkError:
            continue
        world.store.committed()
        before = contents(world.store)
        for _ in range(times):
            assert world.ask(request, "r") == answer
            assert contents(world.store) == before


def test_a_copy_that_comes_after_its_acknowledgement_is_refused() -> None:
    world = a_world()
    world.ask(wire.Record(by="r", run="r", id=1, ack=1, content="Deploys of harbour wait for review"), "r")
    world.ask(wire.Turn(by="r", run="r", id=2, ack=2), "r")
    before = contents(world.store)
    with pytest.raises(Invalid, match="late copy"):
        world.ask(wire.Record(by="r", run="r", id=1, ack=1, content="Deploys of harbour wait for review"), "r")
    assert contents(world.store) == before


def test_a_number_used_for_another_request_is_refused() -> None:
    world = a_world()
    world.ask(wire.Record(by="r", run="r", id=5, content="Deploys of harbour wait for review"), "r")
    before = contents(world.store)
    for other in (
        wire.Turn(by="r", run="r", id=5),
        wire.Pin(by="r", run="r", id=5, target=next(iter(before["percepts"]))),
    ):
        with pytest.raises(Invalid, match="another request"):
            world.ask(other, "r")
    assert contents(world.store) == before


def test_one_that_acknowledges_nothing_is_stopped_until_it_does() -> None:
    world = a_world()
    for number in range(1, UNACKNOWLEDGED_MAX + 1):
        world.ask(wire.Turn(by="r", run="r", id=number), "r")
    late = UNACKNOWLEDGED_MAX + 1
    with pytest.raises(Overloaded):
        world.ask(wire.Turn(by="r", run="r", id=late), "r")
    assert world.ask(wire.Turn(by="r", run="r", id=1), "r").id == 1, "a retry of what was done is answered"
    world.ask(wire.Turn(by="r", run="r", id=late, ack=late), "r")
    assert set(world.store.replies["r"]) == {late}
    world.ask(wire.Turn(by="other", run="r", id=1), "r")
