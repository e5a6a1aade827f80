"""Homes that another program wrote, today, tomorrow or before milkd: kept as they are, or refused (M3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kept import DATE, Kept, bytes_in, furnished, percept, view

from milkd.journal import JournalTooNew
from milkd.loading import TooNew
from milkd.settings import Settings

LATER = "20260212T100000"


@pytest.mark.parametrize("name", ["s.json", "archive.json", "state.json", "journal"])
def test_a_format_of_tomorrow_refuses_the_start_and_nothing_is_touched(tmp_path: Path, name: str) -> None:
    before = furnished(tmp_path)
    before.die()
    (before.memory / "global.json").write_bytes(b"{ half of a fi")
    path = before.memory / name
    data = path.read_bytes()
    if name == "journal":
        path.write_bytes(data[:8] + (99).to_bytes(4, "little") + data[12:])
    else:
        path.write_bytes(data.replace(b'"generation": 1', b'"generation": 1, "format": 99', 1))
    found = bytes_in(tmp_path)
    with pytest.raises(JournalTooNew if name == "journal" else TooNew, match="99"):
        Kept(tmp_path, after=before)
    assert bytes_in(tmp_path) == found


def test_an_older_program_s_home_with_one_file_of_tomorrow_is_not_touched_either(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "global.json").write_text(json.dumps({"percepts": [percept(1, "The gate is blue")]}))
    (memory / "s.json").write_text(json.dumps({"percepts": [percept(2, " ")]}))
    (memory / "t.json").write_text(json.dumps({"milkd": {"format": 2}}))
    found = bytes_in(tmp_path)
    with pytest.raises(TooNew, match=r"t\.json has format 2"):
        Kept(tmp_path)
    assert bytes_in(tmp_path) == found


def test_what_is_no_file_of_the_set_is_left_alone(tmp_path: Path) -> None:
    before = furnished(tmp_path)
    before.die()
    strange = {
        "notes.txt": b"x",
        "not a session!.json": b"{}",
        ".hidden.json": b"{}",
        "s.json.orig": b"{",
        "s.json~": b"",
    }
    for name, data in strange.items():
        (before.memory / name).write_bytes(data)
    (before.memory / "folder.json").mkdir()
    world = Kept(tmp_path, after=before)
    assert view(world.store) == view(before.store) and not world.loaded.problems
    world.say("r", "Bread comes on Tuesdays")
    assert not world.files().error
    assert {name: (world.memory / name).read_bytes() for name in strange} == strange


def test_percepts_of_an_older_program_have_what_they_lack_by_default_and_keep_what_is_unknown(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    odd = '{"a":1.50,  "b" : [1e400,\t12345678901234567890123], "c":"\\u00e9\\/"}'
    text = json.dumps({"percepts": [percept(1, "The gate is blue", w=0.55)]})[:-3] + f', "mood": {odd}}}], "x": {odd}}}'
    (memory / "s.json").write_text(text)
    (tmp_path / "config.json").write_text(knobs := '{"memory": {"prune_threshold": 0.1}, "model": "x"}')
    world = Kept(tmp_path)
    (held,) = world.store.percepts.values()
    record = held.record
    assert (record.w, record.w_confirmed, record.producer, record.evidence) == (0.55, 0.55, "primary", 0)
    assert world.store.present(held) == 0.55, "years on disk are no running time"
    assert not world.files().error
    assert (memory / f"before-milkd-{DATE}" / "s.json").read_text() == text
    assert (memory / "s.json").read_text().count(f'"mood": {odd}') == 1
    assert (memory / "s.json").read_text().count(f'"x": {odd}') == 1
    assert Settings(world.home).config.memory.prune_threshold == 0.1
    assert (tmp_path / "config.json").read_text() == knobs
    again = Kept(tmp_path, after=world, date=LATER)
    assert len(list(memory.glob("before-*"))) == 1, "copied once"
    assert (memory / "s.json").read_text().count(odd) == 2 and view(again.store) == view(world.store)
