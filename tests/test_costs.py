"""Work grows with what is asked, not with what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from milk_client import wire
from world import DAY_S, World, check_invariants

from milkd.ranking import Ranks
from milkd.rules import text
from milkd.store import Store


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


@contextmanager
def calls(owner: Any, name: str) -> Iterator[Callable[[], int]]:
    """How often a function was called so far."""
    real, count = getattr(owner, name), 0

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return real(*given, **named)

    with patch.object(owner, name, counted):
        yield lambda: count


def of_one_subject(count: int, producer: wire.Producer) -> World:
    """A session of facts in one engram, their ranks read once and their texts not since."""
    world = World({})
    for number in range(count):
        content = f"Crate{number} stands in hall{number}"
        world.ask(wire.Record(by="t", session="s", content=content, subject="crates", producer=producer))
    world.ask(wire.Get(by="t", session="s", query="crate1"))
    text.terms.cache_clear()
    text.analyse.cache_clear()
    return world


def test_a_promoted_percept_is_read_once_and_its_engram_and_ranks_not_for_each() -> None:
    world = of_one_subject(50, "user")
    world.attach("r", "s")
    with calls(text, "_fold") as read, calls(Store, "members") as walked, calls(Ranks, "_make") as made:
        assert world.turn("r").promoted == 50
        assert (read(), walked(), made()) == (50, 0, 0)
    check_invariants(world.store)
    assert [held.scope for held in world.ask(wire.Get(by="t", query="hall7")).percepts] == ["global"]


def test_a_moved_percept_is_read_once() -> None:
    world = of_one_subject(50, "primary")
    with calls(text, "_fold") as read:
        world.ask(wire.RenameSession(by="t", old="s", new="other"))
        assert read() == 50
    check_invariants(world.store)
