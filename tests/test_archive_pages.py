"""Whose archive entries a caller is shown (M4)."""

from __future__ import annotations

from typing import Any

from milk_client import wire
from world import World


def archived(session: str, **ask: Any) -> set[str]:
    """What of two sessions' replaced facts is listed, for a tool that speaks of ``session``."""
    world = World({})
    for name in ("one", "two"):
        old = world.ask(wire.Record(by="t", session=name, content=f"The host of {name} is falcon"))
        new = f"The host of {name} is osprey"
        world.ask(wire.Record(by="t", session=name, content=new, replaces=old.percept.id))
    answer = world.ask(wire.ArchiveList(by="t", session=session, **ask))
    return {entry.scope for entry in answer.entries}


def test_a_session_shows_its_own() -> None:
    assert archived("one") == {"one"}


def test_a_person_may_see_all_sessions() -> None:
    assert archived("one", all_sessions=True) == {"one", "two"}


def test_an_agent_sees_its_own_session_alone() -> None:
    assert archived("one", all_sessions=True, role="primary") == {"one"}
