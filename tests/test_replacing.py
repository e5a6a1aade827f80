"""`replaces` with the words that are there already is a restatement, not a quarrel of a fact with itself (M11)."""

from __future__ import annotations

import pytest
from milk_client import wire
from world import World

FACT = "The port of harbour is 8080"


@pytest.mark.parametrize("place", ["session", "global"])
def test_replacing_a_fact_with_its_own_words_restates_it(place: str) -> None:
    world = World({})
    world.attach("a", "s")
    old = world.say("a", FACT).percept.id
    if place == "global":  # by evidence of two sittings, so that an agent may name it and not change it
        world.say("a", FACT)
        world.attach("b", "s")
        world.say("b", FACT)
        world.turn("b")
    assert world.store.percepts[old].scope == ("global" if place == "global" else "s")
    told = world.ask(wire.Record(by="a", run="a", content=f"{FACT}.", replaces=old), "a")
    assert (told.percept.id, told.outcome, told.superseded, told.conflicts_with) == (old, "reinforced", "", "")
    assert not world.store.links and not world.store.archive
