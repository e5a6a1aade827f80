"""Forgetting leaves no byte behind; sessions are renamed and merged (M20, M3)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from agents import Agent
from milk_client import Invalid, NotFound, Refused
from running import Daemon, until
from test_hand_edits import percept, write

Agents = Callable[..., Agent]
SLOW = "[memory]\nsnapshot_interval_s = 1000\n"


def holding(root: Path, *words: str) -> list[str]:
    """Files under a home in which any of the words stands, in any of JSON's spellings."""
    spelt = {form.encode() for word in words for form in (word, json.dumps(word)[1:-1])}
    found = []
    for path in root.rglob("*"):
        try:
            data = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue  # a temporary that has just been renamed
        if any(form in data for form in spelt):
            found.append(str(path.relative_to(root)))
    return found


def test_what_is_forgotten_is_in_no_file_even_with_a_kill_right_after_the_answer_m20(
    daemon: Daemon, agent: Agents
) -> None:
    daemon.write_config(SLOW)
    daemon.start()
    one = agent()
    one.open()
    with daemon.tool() as tool:
        for n in range(6):
            one.record(f"Shelf {n} holds crate c{n}")
            told = one.record(f"The vault code is marzipan{n} today")
            if n % 2:
                one.ask("flush")  # in the files, too
            assert holding(daemon.root, f"marzipan{n}"), "it was on disk"
            tool.forget(told["id"])
            daemon.kill()
            assert holding(daemon.root, f"marzipan{n}") == []
            daemon.start()
            assert holding(daemon.root, f"marzipan{n}") == []
            with pytest.raises(NotFound):
                tool.show(told["id"])
        assert len(tool.list()) == 6


def test_every_earlier_wording_is_forgotten_with_it_m20(daemon: Daemon, agent: Agents) -> None:
    daemon.write_config(SLOW)
    daemon.start()
    one = agent()
    one.open()
    with daemon.tool() as tool:
        edited = one.record("The vault code is marzipan")["id"]
        one.ask("flush")
        tool.edit(edited, "The vault code is nougat")
        tool.edit(edited, "The vault code is praline")
        longer = one.record("The safe holds truffles", producer="user")["id"]
        grown = one.record("The safe holds truffles and brittle", producer="user")
        assert grown["id"] == longer and "brittle" in grown["percept"]["content"]
        core = tool.learn("Never name fondant")
        assert one.turn()["promoted"] == 2, "what the user said has moved on to another file"
        old = tool.record("The till holds caramel", producer="user")
        new = tool.record("The till holds toffee", producer="user", replaces=old)
        words = ("marzipan", "nougat", "praline", "truffles", "brittle", "fondant", "toffee")
        assert holding(daemon.root, *words)
        forgotten = tool.forget(edited, longer, core, new)
        assert forgotten.superseded == [old.id], "what it had superseded is named, and still there"
        assert holding(daemon.root, *words) == []
        assert holding(daemon.root, "caramel")
        tool.forget(old)
        assert holding(daemon.root, "caramel") == []
    daemon.restart()
    assert holding(daemon.root, *words, "caramel") == []


def test_a_forgotten_word_leaves_copies_and_what_was_set_aside_too_m20(daemon: Daemon) -> None:
    kept = percept(1, "The gate is blue")
    gone = percept(2, 'The vault code is «marzipan» "now"', note="sweet")
    write(daemon.memory / "s.json", {"percepts": [kept, gone], "engrams": [], "edges": []})
    write(daemon.memory / "global.json", '{"percepts": [' + json.dumps(gone)[:-4] + "half a file")
    daemon.start()
    assert len(holding(daemon.root, "marzipan")) >= 3, "the file, its copy, and what was set aside"
    with daemon.tool() as tool:
        broken = (daemon.memory / "s.json").read_text().replace('"percepts"', '"percepts', 1)
        write(daemon.memory / "s.json", broken)
        until(lambda: len(list((daemon.memory / "aside").iterdir())) == 2, what="a broken edit is set aside, too")
        tool.forget("00000002")
        assert holding(daemon.root, "marzipan") == []
        assert [p.content for p in tool.list()] == ["The gate is blue"]
    copies = list(daemon.memory.rglob("before-milkd-*/s.json"))
    assert "The gate is blue" in copies[0].read_text(), "the copy keeps what was not forgotten"


def test_earlier_wordings_leave_a_damaged_journal_that_was_set_aside_and_others_stay_in_it_m20(daemon: Daemon) -> None:
    daemon.write_config(SLOW)
    daemon.start()
    with daemon.tool() as tool:
        secret = tool.record("The vault code is marzipan today").id
        tool.edit(secret, "The vault code is nougat today")
        tool.record("Lamp nine shines in green")
        tool.record("Shelf three holds crate nine")
    daemon.kill()
    journal = daemon.memory / "journal"
    data = bytearray(journal.read_bytes())
    data[data.index(b"shines in green")] ^= 0xFF
    journal.write_bytes(data)
    daemon.start()
    assert holding(daemon.memory / "aside", "marzipan", "crate nine")
    with daemon.tool() as tool:
        tool.forget(secret)
    assert holding(daemon.root, "marzipan", "nougat") == []
    (aside,) = (daemon.memory / "aside").iterdir()
    assert b"crate nine" in aside.read_bytes() and b"hines in green" in aside.read_bytes(), "nothing else went"


COPIES = (
    "s.sync-conflict-20261130-101112-ABCDEFG.json",
    "s (ada's conflicted copy 2026-11-30).json",
    "s (conflict 2026-11-30-10-11-12).json",
)


def test_a_copy_that_a_synchronising_program_left_is_named_not_read_and_forgotten_with_the_rest_m20(
    daemon: Daemon,
) -> None:
    daemon.start()
    with daemon.tool() as tool:
        secret = tool.record("The vault code is marzipan today").id
        other = tool.record("Shelf three holds crate nine").id
        tool.flush()
    daemon.kill()
    for name in COPIES:
        (daemon.memory / name).write_bytes((daemon.memory / "s.json").read_bytes())
    daemon.start()
    with daemon.tool() as tool:
        assert {found.id for found in tool.list(all_sessions=True)} == {secret, other}
        assert [line.session for line in tool.sessions()] == ["s"]
        assert all(any(name in note for note in tool.status().notes) for name in COPIES)
        tool.forget(secret)
        assert holding(daemon.root, "marzipan") == []
    assert len(holding(daemon.root, "crate nine")) == len(COPIES) + 1, "the file and its copies"


def test_forgetting_reaches_the_archive_and_the_edges_m20(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    with daemon.tool() as tool:
        first = one.record("The vault code is marzipan")["id"]
        second = one.record("Sweets are kept in the cellar")["id"]
        one.ask("link", first, second, "extends")
        third = tool.record("The vault code is nougat", replaces=first)
        assert [entry.percept.id for entry in tool.archive()] == [first]
        tool.forget(first)
        assert tool.archive() == []
        tool.forget(third)
    assert holding(daemon.root, "marzipan", "nougat", first, third.id) in ([], ["memory/state.json"]), "at most its id"
    assert holding(daemon.root, "marzipan", "nougat") == []


def test_a_forgotten_percept_can_be_said_again_as_a_new_one(daemon: Daemon) -> None:
    daemon.start()
    with daemon.tool() as tool:
        first = tool.record("The vault code is marzipan")
        tool.forget(first)
        again = tool.record("The vault code is marzipan")
        assert again.outcome == "new" and again.id != first.id and again.percept.evidence == 0
    daemon.restart()
    with daemon.tool() as tool:
        assert [p.id for p in tool.list()] == [again.id]


def test_of_several_ids_either_all_are_forgotten_or_none(daemon: Daemon) -> None:
    daemon.start()
    with daemon.tool() as tool:
        first = tool.record("The gate is blue")
        with pytest.raises(NotFound):
            tool.forget(first, str(uuid.uuid4()))
        assert [p.id for p in tool.list()] == [first.id]


# ---------------------------------------------------------------- sessions


def test_a_session_is_renamed_with_all_that_is_in_it(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open("old")
    kept = one.record("The gate is blue", subject="gate")["id"]
    assert one.record("The gate is blue")["percept"]["evidence"] == 1
    gone = one.record("Keys hang by the door")["id"]
    one.record("Keys hang by the window", replaces=gone)
    with daemon.tool() as tool:
        with pytest.raises(Refused):
            tool.rename_session("old", "new")  # a run is there
        one.ask("close")
        before = {p.id: (p.content, p.w_confirmed, p.evidence) for p in tool.list(all_sessions=True)}
        tool.rename_session("old", "new")
        assert not (daemon.memory / "old.json").exists(), "answered when the files say so"
        assert daemon.contents("new") == {"The gate is blue", "Keys hang by the window"}
        assert {line.session for line in tool.sessions()} == {"new"}
    for _ in range(2):
        with daemon.tool("new") as tool:
            assert {p.id: (p.content, p.w_confirmed, p.evidence) for p in tool.list()} == before
            assert [entry.percept.id for entry in tool.archive()] == [gone]
            assert tool.show(kept).engram.subject_label == "gate"  # type: ignore[union-attr]
        daemon.restart()
    two = agent()
    two.open("new")
    assert two.record("The gate is blue")["percept"]["evidence"] == 2, "a new sitting corroborates it there"


def test_two_sessions_are_merged_into_one(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    for name, text in (("one", "The gate is blue"), ("two", "Keys hang by the door")):
        some = agent()
        some.open(name)
        some.record(text, subject="house")
        some.ask("close")
    with daemon.tool() as tool:
        before = {p.id: (p.content, p.w_confirmed) for p in tool.list(all_sessions=True)}
        tool.merge_session("one", "two")
        assert {line.session for line in tool.sessions()} == {"two"}
    assert not (daemon.memory / "one.json").exists()
    assert daemon.contents("two") == {"The gate is blue", "Keys hang by the door"}
    daemon.restart()
    with daemon.tool("two") as tool:
        found = tool.list()
        assert {p.id: (p.content, p.w_confirmed) for p in found} == before
        assert len({p.engram_id for p in found}) == 1, "one engram of one label"


def test_sessions_are_not_renamed_onto_each_other_nor_from_nowhere(daemon: Daemon) -> None:
    daemon.start()
    with daemon.tool("one") as tool:
        tool.record("The gate is blue")
    with daemon.tool("two") as tool:
        tool.record("Keys hang by the door")
        for old, new, kind in (
            ("one", "two", Invalid),
            ("none", "three", NotFound),
            ("one", "global", Invalid),
            ("one", "../x", Invalid),
            ("one", "TWO", Invalid),
        ):
            with pytest.raises(kind):
                tool.rename_session(old, new)
        for source, into, wrong in (("one", "none", NotFound), ("none", "one", NotFound), ("one", "one", Invalid)):
            with pytest.raises(wrong):
                tool.merge_session(source, into)
        assert {line.session: line.percepts for line in tool.sessions()} == {"one": 1, "two": 1}


def test_a_rename_that_is_answered_survives_a_kill(daemon: Daemon) -> None:
    daemon.write_config(SLOW)
    daemon.start()
    for n in range(4):
        with daemon.tool(f"name{n}") as tool:
            if not n:
                tool.record("The gate is blue")
            tool.rename_session(f"name{n}", f"name{n + 1}")
            daemon.kill()
            daemon.start()
            assert {line.session: line.percepts for line in tool.sessions()} == {f"name{n + 1}": 1}
            assert [path.name for path in daemon.memory.glob("name*")] == [f"name{n + 1}.json"]
