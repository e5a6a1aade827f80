"""What is said in a session stays there until it is promoted: an agent looks at its own (M1, M21)."""

from __future__ import annotations

from typing import Any

import pytest
from milk_client import wire
from milk_client.errors import NotFound, Refused
from msgspec.structs import replace
from world import World, check_invariants

from milkd.cells import FileExtra


@pytest.fixture
def two() -> World:
    """Two agents of two sessions; of the second one facts contradict each other, are archived, are for another role."""
    world = World({})
    world.attach("a", "one")
    world.attach("b", "two")
    world.say("a", "Builds of one need gcc 13")
    ids = [world.say("b", text).percept.id for text in ("Host is falcon", "Crates are counted at night")]
    world.say("b", "Deploys of two are frozen", consumer="escalation")
    world.ask(wire.Link(by="b", run="b", source=ids[0], target=ids[1], relation="contradicts"), "b")
    world.say("b", "Host is osprey", replaces=world.say("b", "Rows are kept in a cold store").percept.id)
    return world


def told(answer: Any) -> str:
    """All that an answer says."""
    return wire.encode(answer).decode("utf-8", "replace")


@pytest.mark.parametrize(
    "request_",
    [wire.List(all_sessions=True), wire.ArchiveList(all_sessions=True), wire.Conflicts()],
    ids=lambda request: type(request).__name__,
)
def test_an_agent_sees_nothing_of_another_session_and_a_person_all(two: World, request_: Any) -> None:
    asked = {name: getattr(request_, name) for name in ("all_sessions",) if hasattr(request_, name)}
    for_agent = told(two.ask(type(request_)(by="a", run="a", **asked), "a"))
    words = ("falcon", "Crates", "frozen", "cold store")
    assert not any(word in for_agent for word in words)
    assert any(word in told(two.ask(type(request_)(**asked))) for word in words)


def test_an_agent_exports_nothing_and_shows_nothing_of_another_session(two: World) -> None:
    with pytest.raises(Refused):
        two.ask(wire.Export(by="a", run="a", scope="two"), "a")
    assert "falcon" in told(two.ask(wire.Export(scope="two")))
    for held in list(two.store.percepts.values()):
        if held.scope == "two":
            for look in (wire.Show, wire.Explain):
                with pytest.raises(NotFound):
                    two.ask(look(by="a", run="a", target=held.id), "a")


@pytest.mark.parametrize("how", ["rename", "merge"])
def test_a_session_that_is_moved_keeps_its_engrams_and_fields_of_others_m3(how: str) -> None:
    world = World({})
    world.attach("a", "old")
    world.say("a", "Builds need gcc 13", subject="work")
    world.detach("a")
    store = world.store
    (group,) = store.groups.values()
    store.put("engram", group.id, replace(group, extra={"colour": b'"red"'}))
    store.put("file", "old", FileExtra({"theirs": b"[1]"}))
    if how == "merge":
        world.attach("b", "new")
        world.say("b", "Crates are counted at night")
        world.advance(5.0)
        world.turn("b")
        world.ask(wire.MergeSession(source="old", into="new"))
    else:
        world.ask(wire.RenameSession(old="old", new="new"))
    (moved,) = store.groups.values()
    assert moved == replace(group, scope="new", extra={"colour": b'"red"'})
    assert store.files["new"].top == {"theirs": b"[1]"} and "old" not in store.files
    assert store.seen["new primary"].last_recorded and "old primary" not in store.seen
    if how == "merge":
        assert store.seen["new primary"].last_turn, "the later of each is kept"
    check_invariants(store)
