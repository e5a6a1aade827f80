"""Edges follow their ends, into the archive and out of it (M19)."""

from __future__ import annotations

import pytest
from milk_client import wire
from world import World, check_invariants


def linked() -> tuple[World, str, str]:
    """Two facts of a session that contradict each other, all of it written; the second has gone to the archive."""
    world = World({})
    world.attach("r", "s")
    one = world.say("r", "Deploys wait for review").percept.id
    two = world.say("r", "The vault code is marzipan today").percept.id
    world.ask(wire.Link(by="r", run="r", source=one, target=two, relation="contradicts"), "r")
    world.say("r", "The vault code is nougat now", replaces=two)
    world.store.dirty.clear()
    return world, one, two


@pytest.mark.parametrize("how", ["unlink", "forget the living end", "forget the archived end"])
def test_removing_an_edge_whose_end_is_archived_has_the_archive_written_m19(how: str) -> None:
    world, one, two = linked()
    assert [len(links) for _, links in world.store.archived_with_links()] == [1]
    if how == "unlink":
        assert world.ask(wire.Unlink(session="s", source=one, target=two)).removed == 1
    else:
        world.ask(wire.Forget(session="s", ids=[one if "living" in how else two]))
    assert not world.store.links
    assert "archive" in world.store.dirty
    check_invariants(world.store)


def test_an_edge_that_comes_back_into_force_leaves_the_archive_m19() -> None:
    world, _, two = linked()
    world.ask(wire.Restore(session="s", target=two))
    assert {"archive", "s"} <= world.store.dirty
    assert world.store.contradictions == set(world.store.links)
    check_invariants(world.store)
