"""Starting over damaged files: what cannot be used is told and set aside, the rest is used (M3, M7)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kept import DATE, Kept, bytes_in, contents, furnished, percept, view
from milk_client import wire
from world import DAY_S, check_invariants

from milkd.journal import JournalTooNew
from milkd.loading import TooNew

LATER = "20260212T100000"


def stopped(root: Path) -> Kept:
    """A home with everything in it and no daemon."""
    world = furnished(root)
    world.die()
    return world


# ---------------------------------------------------------------- files that cannot be read

DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "zeros at the end": lambda data: data[: len(data) // 2] + bytes(len(data) // 2),
    "no json": lambda _: b"percepts: []\n",
    "a list": lambda _: b"[]",
    "utf-16": lambda data: data.decode().encode("utf-16"),
    "nested too deep": lambda _: b'{"percepts": ' + b"[" * 200_000,
    "another program's block": lambda data: data.replace(b'"generation": 1', b'"generation": "first"'),
}
OF = {
    "s.json": {"The user likes rye bread", "Keys hang by the door", "Backups run at noon", "Host is osprey"},
    "t.json": {"Tea is at four"},
    "global.json": {"Never commit secrets"},
    "archive.json": set(),
    "state.json": set(),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", OF)
def test_a_file_that_cannot_be_read_is_set_aside_whole_and_told_and_the_rest_is_used(
    tmp_path: Path, name: str, damage: str
) -> None:
    before = stopped(tmp_path)
    path = before.memory / name
    damaged = DAMAGE[damage](path.read_bytes())
    path.write_bytes(damaged)
    (before.memory / "journal").unlink()
    world = Kept(tmp_path, after=before)
    assert contents(world) == set().union(*OF.values()) - OF[name]
    assert not world.loaded.foreign, "no home of another program, whatever is lost"
    assert bool(world.store.archive) == (name != "archive.json")
    (problem,) = (line for line in world.loaded.problems if line.startswith(f"{name}:"))
    assert f"memory/aside/{DATE}-{name}" in problem and problem in world.keeper.health.values()
    assert world.aside()[name] == damaged and path.read_bytes() == damaged, "kept, and not overwritten yet"
    assert not world.files().error
    again = Kept(tmp_path, after=world, date=LATER)
    assert not again.loaded.problems and contents(again) == contents(world)
    assert list(again.aside()) == list(world.aside()), "known now: not set aside at each start"


@pytest.mark.parametrize("name", ["s.json", "global.json", "archive.json"])
def test_a_byte_order_mark_hinders_nobody(tmp_path: Path, name: str) -> None:
    before = stopped(tmp_path)
    path = before.memory / name
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    world = Kept(tmp_path, after=before)
    assert view(world.store) == view(before.store) and not world.loaded.problems


def test_numbers_of_an_older_copy_of_a_file_hold_as_of_its_own_clock_m3(tmp_path: Path) -> None:
    before = furnished(tmp_path)
    path = before.memory / "s.json"
    copy = path.read_bytes()
    for _ in range(48):
        before.advance(1500.0)
        before.say("r", "Bread comes on Tuesdays")
    before.files()
    before.die()
    path.write_bytes(copy)
    world = Kept(tmp_path, after=before)
    assert contents(world) == contents(before) - {"Bread comes on Tuesdays"}
    for percept_id, held in world.store.percepts.items():
        assert world.store.present(held) == pytest.approx(before.store.present(before.store.percepts[percept_id]))
        assert held.scope != "s" or world.store.present(held) < 0.75


def test_a_global_was_idle_since_its_file_was_written_too_m3_m9(tmp_path: Path) -> None:
    before = furnished(tmp_path)
    for _ in range(3):
        before.advance(1500.0)
        before.say("r", "Bread comes on Tuesdays")
    assert not before.files().error  # of another scope: global.json stays as it was
    world = before.again()
    assert view(world.store) == view(before.store)
    (secrets,) = (held for held in world.store.percepts.values() if held.scope == "global")
    assert world.store.idle_s(secrets) >= 4500.0


@pytest.mark.parametrize("how", ["by hand", "by damage"])
def test_an_edge_in_the_journal_whose_end_is_gone_is_set_aside_m19(tmp_path: Path, how: str) -> None:
    before = furnished(tmp_path)
    keys = next(i for i, held in before.store.percepts.items() if held.record.content == "Keys hang by the door")
    new = before.ask(wire.Record(session="s", content="Milk comes on Mondays")).percept.id
    if how == "by hand":
        assert not before.files().error
    before.ask(wire.Link(source=keys, target=new, relation="extends"))
    before.die()
    path = before.memory / ("s.json" if how == "by hand" else "journal")
    data = path.read_bytes()
    if how == "by hand":
        document = json.loads(data)
        document["percepts"] = [p for p in document["percepts"] if p["id"] != new]
        data = json.dumps(document).encode()
    path.write_bytes(data.replace(b"Milk comes on Mondays", b"Milk comes on Sundays"))
    world = Kept(tmp_path, after=before)
    assert new not in world.store.percepts
    check_invariants(world.store)
    assert (
        "an edge lacks an end" in " ".join(world.loaded.problems) and new.encode() in world.aside()["journal.edge.json"]
    )
    assert view(world.again().store) == view(world.store)


def test_an_edge_whose_end_was_taken_out_of_a_file_just_before_a_crash_is_kept_with_the_archived_one_m19(
    tmp_path: Path,
) -> None:
    before = furnished(tmp_path)
    (key,) = before.store.links
    path = before.memory / "s.json"
    document = json.loads(path.read_bytes())
    document["percepts"] = [p for p in document["percepts"] if p["content"] != "Backups run at noon"]
    path.write_text(json.dumps(document))
    assert before.look("s.json") == 1
    world = before.again()
    assert view(world.store) == view(before.store) and list(world.store.links) == [key]
    world.ask(wire.Restore(target=key.split()[1]))
    source, target, relation = key.split()
    world.ask(wire.Unlink(source=source, target=target, relation=relation))
    assert not world.again().store.links, "what the journal tells of an edge goes first"


def test_a_mark_of_a_set_that_cannot_be_read_stops_no_start(tmp_path: Path) -> None:
    before = stopped(tmp_path)
    (before.memory / ".set.json").write_bytes(bytes(200))
    world = Kept(tmp_path, after=before)
    assert view(world.store) == view(before.store)
    assert world.aside()[".set.json"] == bytes(200) and ".set.json" in world.loaded.notes[0]
    assert not (world.memory / ".set.json").exists()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*OF, "journal"]),
    at=st.floats(0, 1, exclude_max=True),
    junk=st.one_of(st.binary(min_size=1, max_size=3), st.sampled_from([b"", b"0", b'"', b"}", b"-1", b"null", b"[]"])),
    gone=st.integers(0, 40),
)
def test_bytes_that_change_in_one_file_cost_no_other_file_anything(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: float, junk: bytes, gone: int
) -> None:
    root = tmp_path_factory.mktemp("home")
    before = stopped(root)
    path = before.memory / name
    data = path.read_bytes()
    end = data.rstrip(b"\0")
    begin = int(at * len(end))
    path.write_bytes(data[:begin] + junk + data[begin + gone :])
    before_start = bytes_in(before.memory)
    try:
        world = Kept(root, after=before)
    except (TooNew, JournalTooNew):
        assert bytes_in(before.memory) == before_start
        return
    everything = set().union(*OF.values())
    assert contents(world) >= everything - OF.get(name, set())
    world.say("r", "Bread comes on Tuesdays")
    assert not world.files().error
    assert contents(Kept(root, after=world)) == contents(world)


# ---------------------------------------------------------------- parts that cannot be used

GOOD = percept(1, "The gate is blue")
WRONG: dict[str, tuple[str, Any]] = {
    "a word for a number": ("percepts", percept(2, "x", w="high")),
    "a strength above one": ("percepts", percept(2, "x", w=7)),
    "a negative idle time": ("percepts", percept(2, "x", idle_seconds=-1)),
    "evidence below nought": ("percepts", percept(2, "x", evidence=-1)),
    "no content": ("percepts", percept(2, " ")),
    "a producer nobody knows": ("percepts", percept(2, "x", producer="robot")),
    "no dates": ("percepts", {"id": "2", "content": "x", "w": 0.5}),
    "an id with a slash": ("percepts", {**percept(2, "x"), "id": "../2"}),
    "no object": ("percepts", 17),
    "nothing": ("percepts", None),
    "an engram without a label": ("engrams", {"id": "e", "percept_ids": []}),
    "an edge to nowhere": ("edges", {"from": GOOD["id"], "to": "nowhere", "relation": "extends"}),
    "an edge to itself": ("edges", {"from": GOOD["id"], "to": GOOD["id"], "relation": "extends"}),
    "an edge of no relation": ("edges", {"from": GOOD["id"], "to": "x", "relation": "likes"}),
    "a percept of another file": ("percepts", percept(9, "x")),
    "a percept twice": ("percepts", GOOD),
    "gone for no reason": ("archive", {"percept": percept(3, "x"), "edges": [], "at": "", "scope": "s"}),
    "nothing that is gone": ("archive", {"edges": [], "reason": "pruned", "at": "", "scope": "s"}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_part_that_cannot_be_used_is_set_aside_alone_and_once(tmp_path: Path, what: str) -> None:
    kind, part = WRONG[what]
    memory = tmp_path / "memory"
    memory.mkdir()
    document: dict[str, Any] = {"percepts": [GOOD], "engrams": [], "edges": [], "archive": []}
    document[kind].append(part)
    archive = {"archive": document.pop("archive")}
    (memory / "s.json").write_text(json.dumps(document))
    (memory / "archive.json").write_text(json.dumps(archive))
    (memory / "global.json").write_text(json.dumps({"percepts": [percept(9, "Never commit secrets", core=True)]}))
    world = Kept(tmp_path)
    assert contents(world) == {"The gate is blue", "Never commit secrets"} and not world.store.links
    assert not world.store.archive
    (problem,) = world.loaded.problems
    assert problem.startswith(("s.", "archive.")) and problem in world.keeper.health.values()
    ((name, kept),) = world.aside().items()
    assert name in problem
    told = json.loads(kept)
    assert told == part or (isinstance(part, dict) and part.items() <= {**told}.items())
    assert not world.files().error
    again = Kept(tmp_path, after=world, date=LATER)
    assert not again.loaded.problems and contents(again) == contents(world)


def test_how_long_an_archived_global_was_idle_is_known_after_a_restart_m4(tmp_path: Path) -> None:
    before = furnished(tmp_path)
    bread = next(i for i, held in before.store.percepts.items() if "rye" in held.record.content)
    before.turn("r")
    before.advance(1200.0)
    assert not before.files().error
    document = json.loads((before.memory / "global.json").read_bytes())
    document["percepts"] = [one for one in document["percepts"] if one["id"] != bread]
    (before.memory / "global.json").write_text(json.dumps(document))
    assert before.look("global.json") == 1
    before.advance(300.0)
    assert not before.files().error
    told = before.ask(wire.Show(target=bread)).percept.idle_seconds
    assert told >= 1500.0
    assert before.again().ask(wire.Show(target=bread)).percept.idle_seconds == pytest.approx(told)


@pytest.mark.parametrize("fate", ["archived", "promoted", "merged"])
def test_fields_of_others_in_an_engram_outlive_its_last_member_m3(tmp_path: Path, fate: str) -> None:
    world = Kept(tmp_path, run_idle_after_minutes=math.inf)
    world.attach("r", "s")
    producer = "primary" if fate == "archived" else "user"
    said = world.say("r", "User likes rye bread", subject="bread", producer=producer).percept.id
    assert not world.files().error
    path = world.memory / "s.json"
    document = json.loads(path.read_bytes())
    document["engrams"][0]["colour"] = [1.50, "rye"]
    path.write_text(json.dumps(document))
    assert world.look("s.json") == 1
    if fate == "merged":
        world.attach("q", "t")
        world.say("q", "The user likes rye bread", producer="user")
        world.turn("q")
    world.advance(9 * DAY_S)
    world.turn("r")
    assert said not in world.store.scope("s").living
    assert not world.files().error
    world = world.again()
    kept = [group.extra for group in world.store.groups.values() if group.extra]
    assert kept == [{"colour": b'[1.5, "rye"]'}], "once, where its members are or come back to"
    if fate == "archived":
        world.ask(wire.Restore(target=said))
        (member,) = world.store.members(next(i for i, group in world.store.groups.items() if group.extra))
        assert member.id == said
