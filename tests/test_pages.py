"""Pages of `list`, `archivelist` and `export`: what stays is on one of them, once, whatever happens in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from milk_client import wire
from milk_client.errors import Invalid
from world import World

from milkd import order
from milkd.order import Order, page

Show = Callable[..., wire.Ask]
SHOWS: dict[str, Show] = {
    "list": lambda **ask: wire.List(by="t", session="s", **ask),
    "archivelist": lambda **ask: wire.ArchiveList(by="t", session="s", **ask),
    "percepts": lambda **ask: wire.Export(by="t", scope="s", **ask),
    "archive": lambda **ask: wire.Export(by="t", part="archive", **ask),
    "edges": lambda **ask: wire.Export(by="t", scope="s", part="edges", **ask),
    "engrams": lambda **ask: wire.Export(by="t", scope="s", part="engrams", **ask),
}


def names(answer: Any) -> list[str]:
    """What a page shows, by id; an edge by its ends."""
    match answer:
        case wire.Percepts():
            return [percept.id for percept in answer.percepts]
        case wire.ArchivedList():
            return [entry.percept.id for entry in answer.entries]
    found = []
    for item in map(msgspec.json.decode, answer.items):
        inner = item.get("percept", item)
        found.append(inner["id"] if "id" in inner else f"{inner['from']} {inner['to']}")
    return found


def walk(world: World, show: Show, **ask: Any) -> Iterator[list[str]]:
    """Page after page, to the end."""
    after = ""
    while True:
        answer = world.ask(show(after=after, **ask))
        yield names(answer)
        after = answer.next
        if not after:
            return


def filled(count: int = 12) -> World:
    """A session whose facts stand one after the other in an engram each; as many more lie in its archive."""
    world = World({})
    before = ""
    for number in range(count):
        world.advance(1.0)
        old = world.ask(wire.Record(by="t", session="s", content=f"Crate {number} was painted")).percept.id
        world.advance(1.0)
        record = wire.Record(
            by="t", session="s", content=f"Host {number} is falcon", replaces=old, subject=f"x{number}"
        )
        new = world.ask(record).percept.id
        if before:
            world.ask(wire.Link(by="t", session="s", source=before, target=new, relation="extends"))
        before = new
    return world


@pytest.mark.parametrize("what", SHOWS)
def test_all_pages_together_are_everything_once(what: str) -> None:
    world = filled()
    (whole,) = walk(world, SHOWS[what])
    pages = list(walk(world, SHOWS[what], limit=5))
    assert [name for part in pages for name in part] == whole and len(set(whole)) == len(whole) >= 11
    assert [len(part) for part in pages[:2]] == [5, 5]


def test_the_archive_is_shown_newest_first_and_percepts_oldest_first() -> None:
    world = filled()
    moments = [entry.at for entry in world.ask(SHOWS["archivelist"]()).entries]
    assert moments == sorted(moments, reverse=True)
    births = [percept.created_at for percept in world.ask(SHOWS["list"]()).percepts]
    assert births == sorted(births)


@pytest.mark.parametrize("what", SHOWS)
def test_a_page_goes_on_where_the_last_item_was_when_it_has_gone(what: str) -> None:
    world = filled()
    (whole,) = walk(world, SHOWS[what])
    pages = walk(world, SHOWS[what], limit=5)
    first = next(pages)
    store = world.store
    for name in first[-2:]:
        if what == "edges":
            store.put("edge", f"{name} extends", None)
        elif what == "engrams":
            store.put("engram", name, None)
        else:
            world.ask(wire.Forget(by="t", session="s", ids=[name]))
    gone = set(whole) - {name for part in walk(world, SHOWS[what]) for name in part}
    assert set(first[-2:]) <= gone
    rest = [name for part in pages for name in part]
    assert [name for name in whole if name not in gone] == [name for name in first + rest if name not in gone]


def test_what_is_promoted_between_two_pages_is_on_one_of_them() -> None:
    world = World({})
    world.attach("r", "s")
    ids = []
    for number in range(12):
        world.advance(1.0)
        said = world.say("r", f"Crate {number} is painted", producer="user" if number % 3 == 0 else "primary")
        ids.append(said.percept.id)
    pages = walk(world, SHOWS["list"], limit=5)
    shown = next(pages)
    assert world.turn("r").promoted == 4
    assert shown + [name for part in pages for name in part] == ids


def test_an_entry_that_comes_back_and_goes_again_shows_no_other_twice() -> None:
    world = filled()
    pages = walk(world, SHOWS["archivelist"], limit=5)
    first = next(pages)
    world.ask(wire.Restore(by="t", session="s", target=first[-1]))
    world.advance(1.0)
    world.ask(wire.Record(by="t", session="s", content="Crates are sold", replaces=first[-1]))
    rest = [name for part in pages for name in part]
    assert len(first + rest) == len(set(first + rest)) == 12


@pytest.mark.parametrize("what", SHOWS)
def test_after_is_what_a_page_gave_or_an_id_that_is_there(what: str) -> None:
    world = filled()
    (whole,) = walk(world, SHOWS[what])
    after = f"{whole[4]} extends" if what == "edges" else whole[4]
    assert names(world.ask(SHOWS[what](after=after))) == whole[5:]
    for wrong in ("nonsense", "nan x", "inf x", "12.5", " "):
        with pytest.raises(Invalid, match="after"):
            world.ask(SHOWS[what](after=wrong))


@pytest.mark.parametrize("what", ["list", "archivelist"])
def test_a_page_looks_at_no_more_than_so_many(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "LOOKED_AT_MAX", 5)
    pages = list(walk(filled(31), SHOWS[what], pattern="host 30" if what == "list" else "crate 0"))
    assert [len(part) for part in pages] == [0, 0, 0, 0, 0, 0, 1]


def test_a_page_costs_what_it_holds() -> None:
    """However much stands before it: the first page looks at as many as the last one."""
    names_of = [f"{number:05}" for number in range(20_000)]
    one = Order()
    random.Random(1).shuffle(names_of)
    for name in names_of:
        one.put(name, float(name))
    looked_at = 0

    def wanted(_: str) -> bool:
        nonlocal looked_at
        looked_at += 1
        return True

    after, counts, found = "", [], []
    while True:
        looked_at = 0
        part, after = page([one], after, 100, wanted)
        found += part
        counts.append(looked_at)
        if not after:
            break
    assert found == sorted(names_of)
    assert len(counts) == 200 and max(counts) <= 101


deeds = st.lists(
    st.tuples(st.sampled_from(["put", "put", "drop", "page"]), st.integers(0, 30), st.integers(0, 4)), max_size=150
)


@settings(max_examples=200, deadline=None)
@given(deeds, st.booleans())
def test_through_any_history_pages_hold_what_stays_once_and_in_order(
    history: list[tuple[str, int, int]], backwards: bool
) -> None:
    """Of two orders as one; a name that comes back may have another number."""
    orders = (Order(), Order())
    there: dict[str, tuple[float, str]] = {}
    stays: set[str] = set()
    shown: list[tuple[float, str]] = []
    after = ""
    for deed, number, by in history:
        name = f"n{number}"
        if deed == "page":
            part, after = page(orders, after, 1 + by, lambda _: True, backwards=backwards)
            shown += [there[name] for name in part]
            if not after:
                assert shown == sorted(shown, reverse=backwards)
                assert all([name for _, name in shown].count(name) == 1 for name in stays)
                shown, stays = [], set(there)
        elif deed == "put" and name not in there:
            there[name] = (float(by), name)
            orders[number % 2].put(name, float(by))
        elif deed == "drop" and name in there:
            del there[name]
            stays.discard(name)
            orders[number % 2].drop(name)
        for one in orders:
            assert set(one) == {name for name in there if name in one}
    assert sum(map(len, orders)) == len(there)
    found, _ = page(orders, "", 1000, lambda _: True, backwards=backwards)
    assert found == [name for _, name in sorted(there.values(), reverse=backwards)]
