"""What a person does to a file obeys the rules of the command that does the same, or is refused (M2, M11, M20)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from milk_client import wire
from milk_client.errors import Invalid, MilkError, Refused, TooLarge
from world import World, check_invariants, contents, file_of

from milkd import shapes
from milkd.edits import Edited

File = dict[str, Any]
Edit = Callable[[File], None]


def edit(world: World, scope: str, change: Edit, *, old: bytes = b"") -> None:
    """A person changes a scope's file, as it is or as it was (``old``), and saves it."""
    base = old or file_of(world.store, scope)
    read: File = json.loads(base)
    change(read)
    data = json.dumps(read, ensure_ascii=False).encode()
    world.apply(Edited(scope, shapes.parse(data), shapes.parse(base), data))
    check_invariants(world.store)


@pytest.fixture
def world() -> World:
    """Two facts of a session in an engram, one of another session, one global, an agent's evidence on the first."""
    made = World({"core_max": 2})
    made.attach("a", "s")
    made.attach("b", "t")
    for text in ("Builds use pip on this host", "Deploys wait for review"):
        made.say("a", text, subject="work")
    made.say("a", "Builds use pip on this host")
    made.say("b", "Crates are counted at night")
    made.ask(wire.Record(content="Never commit secrets", core=True))
    return made


def found(world: World, words: str) -> Any:
    """The living percept that says so."""
    return next(held for held in world.store.percepts.values() if words in held.record.content)


def pick(file: File, words: str) -> dict[str, Any]:
    """The percept of a file that says so."""
    percept: dict[str, Any] = next(p for p in file["percepts"] if words in p["content"])
    return percept


def drop(file: File, words: str) -> None:
    file["percepts"] = [p for p in file["percepts"] if words not in p["content"]]


@pytest.mark.parametrize("cut_first", [True, False])
def test_a_percept_cut_from_one_file_and_pasted_into_another_moves(world: World, cut_first: bool) -> None:
    percept = pick(json.loads(file_of(world.store, "s")), "pip")
    steps: list[tuple[str, Edit]] = [
        ("s", lambda file: drop(file, "pip")),
        ("global", lambda file: file["percepts"].append(percept)),
    ]
    for scope, step in steps if cut_first else reversed(steps):
        edit(world, scope, step, old=file_of(world.store, scope))
    held = found(world, "pip")
    assert (held.scope, held.record.evidence, world.store.archive) == ("global", 1, {})
    edit(world, "t", lambda file: file["percepts"].append(pick(json.loads(file_of(world.store, "global")), "pip")))
    assert found(world, "pip").scope == "t"


def test_what_was_deleted_and_put_back_lives_again_m4(world: World) -> None:
    before = json.loads(file_of(world.store, "s"))
    edit(world, "s", lambda file: drop(file, "Deploys"))
    assert [gone.reason for gone in world.store.archive.values()] == ["evicted"]
    edit(world, "s", lambda file: file.update(before))
    assert found(world, "Deploys").scope == "s" and not world.store.archive


def test_another_text_is_a_persons_edit_m20(world: World) -> None:
    held = found(world, "pip")
    assert held.record.evidence == 1
    edit(world, "s", lambda file: pick(file, "pip").update(content="  Builds use uv on this host "))
    new = world.store.percepts[held.id].record
    assert (new.content, new.producer, new.evidence, new.evidence_event) == ("Builds use uv on this host", "user", 0, 0)
    assert new.w >= 0.9 and new.w_confirmed >= 0.9 and new.core is False


def test_core_by_hand_is_pin_and_unpin_m20(world: World) -> None:
    edit(world, "s", lambda file: pick(file, "pip").update(core=True))
    held = found(world, "pip")
    assert (held.scope, held.record.core, held.record.w) == ("global", True, 1.0)
    with pytest.raises(Refused, match="core_max"):
        edit(world, "s", lambda file: pick(file, "Deploys").update(core=True))
    edit(world, "global", lambda file: pick(file, "secrets").pop("core"))
    assert (found(world, "secrets").record.core, found(world, "secrets").record.w) == (False, 0.9)


def test_engrams_are_renamed_left_joined_and_removed(world: World) -> None:
    edit(world, "s", lambda file: file["engrams"][0].update(subject_label="labour", colour="red"))
    (group,) = world.store.groups.values()
    assert (group.label, group.extra) == ("labour", {"colour": b'"red"'})
    deploys = found(world, "Deploys")
    edit(world, "s", lambda file: file["engrams"][0]["percept_ids"].remove(deploys.id))
    assert found(world, "Deploys").record.engram_id == "" and found(world, "pip").record.engram_id == group.id
    edit(world, "s", lambda file: file["engrams"][0]["percept_ids"].append(deploys.id))
    assert found(world, "Deploys").record.engram_id == group.id
    edit(world, "s", lambda file: file.update(engrams=[]))
    assert not world.store.groups and found(world, "pip").record.engram_id == ""


def test_fields_of_an_edge_are_taken_and_a_contradiction_stands_once_m2(world: World) -> None:
    one, two = found(world, "pip").id, found(world, "Deploys").id
    edge = {"from": one, "to": two, "relation": "contradicts"}
    edit(world, "s", lambda file: file["edges"].append(edge))
    edit(world, "s", lambda file: file["edges"].append({"from": two, "to": one, "relation": "contradicts"}))
    assert len(world.store.links) == 1
    edit(world, "s", lambda file: file["edges"][0].update(propagated=2, why="seen"))
    (link,) = world.store.links.values()
    assert (link.edge.propagated, link.extra) == (2, {"why": b'"seen"'})
    edit(world, "s", lambda file: file.update(edges=[]))
    assert not world.store.links


def test_an_edit_of_what_was_archived_meanwhile_brings_it_back(world: World) -> None:
    old, held = file_of(world.store, "s"), found(world, "Deploys")
    edit(world, "s", lambda file: drop(file, "Deploys"))
    edit(world, "s", lambda file: pick(file, "Deploys").update(content="Deploys wait for two reviews"), old=old)
    assert found(world, "two reviews").id == held.id and not world.store.archive


def test_what_was_forgotten_stays_forgotten(world: World) -> None:
    old, held = file_of(world.store, "s"), found(world, "Deploys")
    world.ask(wire.Forget(session="s", ids=[held.id]))
    edit(world, "s", lambda file: pick(file, "Deploys").update(content="Deploys wait for two reviews"), old=old)
    paste = pick(json.loads(old), "Deploys")
    edit(world, "s", lambda file: file["percepts"].append(paste))
    assert held.id not in world.store.percepts


def edge_to(world: World, words: str) -> File:
    return {"from": found(world, "pip").id, "to": found(world, words).id, "relation": "extends"}


WRONG: dict[str, tuple[type[MilkError], str, Callable[[World, File], None]]] = {
    "too long": (TooLarge, "content", lambda _, file: pick(file, "pip").update(content="x" * 3000)),
    "too long and new": (
        TooLarge,
        "content",
        lambda _, file: file["percepts"].append({**file["percepts"][0], "id": "new", "content": "x" * 3000}),
    ),
    "an engram that is not there": (Invalid, "engram_id", lambda _, file: pick(file, "pip").update(engram_id="e")),
    "an edge between sessions": (Invalid, "sessions", lambda w, file: file["edges"].append(edge_to(w, "Crates"))),
    "an edge to nowhere": (
        Invalid,
        "no percept",
        lambda w, file: file["edges"].append({**edge_to(w, "Crates"), "to": "nowhere"}),
    ),
    "a label that is taken": (
        Invalid,
        "label",
        lambda _, file: file["engrams"].append({**file["engrams"][0], "id": "other", "percept_ids": []}),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_edit_with_one_thing_wrong_changes_nothing(world: World, what: str) -> None:
    error, word, change = WRONG[what]
    before = contents(world.store)

    def both(file: File) -> None:
        pick(file, "Deploys").update(content="Deploys wait for two reviews")
        change(world, file)

    with pytest.raises(error, match=word):
        edit(world, "s", both)
    assert contents(world.store) == before
    check_invariants(world.store)
