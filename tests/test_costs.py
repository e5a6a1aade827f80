"""Work grows with what is asked, not with what is stored."""

from __future__ import annotations

from typing import Any

from milk_client import wire
from world import DAY_S, World, check_invariants


class Watched(dict[str, Any]):
    """A table that counts what is read of it."""

    read = 0

    def __getitem__(self, key: str) -> Any:
        self.read += 1
        return super().__getitem__(key)

    def values(self) -> Any:
        self.read += len(self)
        return super().values()

    def items(self) -> Any:
        self.read += len(self)
        return super().items()


def test_forget_names_what_was_superseded_without_a_walk_through_the_archive() -> None:
    world = World({})
    for number in range(30):
        old = world.ask(wire.Record(by="t", session="s", content=f"Crate {number} was painted")).percept.id
        new = world.ask(wire.Record(by="t", session="s", content=f"Host {number} is falcon", replaces=old)).percept.id
    store = world.store
    store.archive = Watched(store.archive)
    assert world.ask(wire.Forget(by="t", session="s", ids=[new])).superseded == [old]
    assert store.archive.read <= 2
    assert world.ask(wire.Forget(by="t", session="s", ids=[old])).superseded == []
    check_invariants(store)


def test_forgetting_both_names_neither() -> None:
    world = World({})
    old = world.ask(wire.Record(by="t", session="s", content="Crate 1 was painted")).percept.id
    new = world.ask(wire.Record(by="t", session="s", content="Host 1 is falcon", replaces=old)).percept.id
    assert world.ask(wire.Forget(by="t", session="s", ids=[new, old])).superseded == []
    check_invariants(world.store)


def test_the_sessions_are_counted_without_a_walk_through_their_percepts() -> None:
    world = World({"run_idle_after_minutes": "never"})
    for session in ("one", "two"):
        world.attach(session, session)
        for number in range(30):
            world.say(session, f"Crate {number} is painted", producer="primary" if number else "user")
    store = world.store
    watched = store.percepts = Watched(store.percepts)
    assert [line.percepts for line in world.ask(wire.Sessions()).sessions] == [30, 30]
    assert watched.read == 0
    world.detach("two")
    world.advance(30 * DAY_S)
    counted = {line.session: line.percepts for line in world.ask(wire.Sessions()).sessions}
    assert counted == {"one": 1, "two": 29}, "all but what would be promoted has faded, where the clock ran"
