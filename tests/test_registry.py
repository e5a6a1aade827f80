"""Forgetting in files beside the set: every one that milkd writes or finds a copy of loses the percept, and it alone.

What must go goes in whatever spelling it stands there (M20); whoever else stands there stays, and files of other
programs are not touched.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faults import Disk, How, PowerCut
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kept import DATE, Kept, bytes_in, contents, furnished, no_waiting, percept
from milk_client import wire

from milkd import journal, registry
from milkd.journal import Journal, scan
from milkd.registry import scrub
from milkd.scrubbing import scrubbed
from milkd.tables import UNSCRUBBED

GONE, OTHER, THIRD = (percept(number, "")["id"] for number in (1, 2, 3))
LATER = "20260212T100000"
WORDS = 'The «vault» code is {märzipan}, "now"\tor <never>/𝄞'
"""What JSON may spell in many ways: quotes, braces, a tab, a slash, two bytes, four bytes, and `<` as Go has it."""


@pytest.fixture(autouse=True)
def disk_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    no_waiting(monkeypatch)


def plainly(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def upper(text: str) -> str:
    """As some libraries do: hexadecimal digits in capitals, a slash with a backslash."""
    spelt = json.dumps(text).replace("/", "\\/")
    return "".join(part.upper() if n % 2 else part for n, part in enumerate(spelled_units(spelt)))


def spelled_units(spelt: str) -> list[str]:
    """The text in parts: every other one is the four digits after a backslash and a u."""
    parts: list[str] = []
    for n, part in enumerate(spelt.split("\\u")):
        parts += [part + "\\u"] if not n else [part[:4], part[4:] + "\\u"]
    parts[-1] = parts[-1].removesuffix("\\u")
    return parts


def throughout(text: str) -> str:
    """Each character by its number."""
    units = text.encode("utf-16-be").hex()
    return '"' + "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4)) + '"'


def as_milkd(text: str) -> str:
    return msgspec.json.encode(text).decode()


SPELLINGS: dict[str, Callable[[str], str]] = {
    "milkd": as_milkd,
    "python": json.dumps,
    "plain": plainly,
    "capitals": upper,
    "numbers": throughout,
}


def holding(data: bytes, text: str) -> list[str]:
    """The spellings of a text in which it stands among the bytes, as a string of JSON or bare."""
    found = [name for name, spell in SPELLINGS.items() if spell(text)[1:-1].encode() in data]
    return [*found, "bare"] if text.encode() in data else found


def one(percept_id: str, spelt: str, *, last: bool = False) -> str:
    """A percept of a file, its content spelt so; the id first, as milkd writes it, or last, with roles before it."""
    content, roles = f'"content": {spelt}, "w": 0.7', '"roles": {"theme": "{sweets"}'
    if last:
        return f'{{{content}, {roles}, "id": "{percept_id}"}}'
    return f'{{"id": "{percept_id}", {content}, {roles}}}'


def document(*percepts: str, line: str = "\n  ") -> str:
    """A file with those percepts, and with what else milkd and others write there."""
    engrams = f'{{"id": "e1", "subject_label": "sweets", "percept_ids": ["{GONE}", "{OTHER}"]}}'
    edges = [
        f'{{"from": "{OTHER}", "to": "{GONE}", "relation": "extends"}}',
        f'{{"from": "{OTHER}", "to": "{THIRD}", "relation": "extends"}}',
    ]
    parts = {"percepts": ", ".join(percepts), "engrams": engrams, "edges": ", ".join(edges)}
    inside = "".join(f'{line}"{name}": [{value}],' for name, value in parts.items())
    return f'{{{inside}{line}"theirs": {{"big": 1e400, "price": 1.10, "n": 12345678901234567890}}{line}}}'


# ---------------------------------------------------------------- a whole file


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_whole_file_loses_the_percept_and_its_edges_and_all_else_keeps_its_spelling_m20(
    spelling: str, last: bool
) -> None:
    """Another wording than the present one: it can be known by the id alone."""
    spell = SPELLINGS[spelling]
    text = document(one(GONE, spell(WORDS), last=last), one(OTHER, spell("The gate is «blue»")), one(THIRD, '"y"'))
    clean = scrubbed(text.encode(), [GONE], ["The vault code is nougat"])
    assert holding(clean, WORDS) == [] and GONE.encode() not in clean
    found = json.loads(clean)
    assert [p["content"] for p in found["percepts"]] == ["The gate is «blue»", "y"]
    assert found["engrams"] == [{"id": "e1", "subject_label": "sweets", "percept_ids": [OTHER]}]
    assert found["edges"] == [{"from": OTHER, "to": THIRD, "relation": "extends"}]
    for kept in (spell("The gate is «blue»"), "1e400", "1.10", "12345678901234567890", '"{sweets"'):
        assert kept.encode() in clean, "byte for byte"
    assert scrubbed(clean, [GONE], ["The vault code is nougat"]) == clean, "again = no change"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_same_words_under_another_id_go_too_m20(spelling: str) -> None:
    """A copy whose percept has another id, or a field of another program."""
    spelt = SPELLINGS[spelling](WORDS)
    text = document(one(OTHER, spelt), one(THIRD, '"The gate is blue"')).replace('"e1"', f'"e1", "note": {spelt}')
    clean = scrubbed(text.encode(), [GONE], [WORDS])
    assert holding(clean, WORDS) == []
    assert [p["content"] for p in json.loads(clean)["percepts"]] == ["", "The gate is blue"]


@pytest.mark.parametrize("words", ["tea", "e", "content", "id", "7", "{", '"', "\\", "0.7", "percepts", " "])
def test_words_that_are_part_of_others_leave_them_alone_m20(words: str) -> None:
    others = ["The tea is at seven", f"It is {words} that matters", f"see {GONE}"]
    text = document(one(GONE, json.dumps(words)), *(one(f"{n}" * 8, json.dumps(o)) for n, o in enumerate(others, 4)))
    found = json.loads(scrubbed(text.encode(), [GONE], [words]))
    assert [p["content"] for p in found["percepts"]] == others
    assert all(p["roles"] == {"theme": "{sweets"} for p in found["percepts"])
    assert [g["subject_label"] for g in found["engrams"]] == ["sweets"] and len(found["edges"]) == 1


def test_a_file_that_holds_nothing_of_it_stays_as_it_is() -> None:
    text = document(one(OTHER, '"caf\\u00e9"')).replace(GONE, THIRD).encode()
    for data in (text, b"\xef\xbb\xbf" + text, text.decode().encode("utf-16"), text[:-9], b"", b"null", b"\0\xff"):
        assert scrubbed(data, [GONE], [WORDS, ""]) == data


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_a_file_in_another_encoding_is_read_all_the_same_m20(encoding: str) -> None:
    """An editor may have left it so; it was set aside."""
    data = document(one(GONE, plainly(WORDS)), one(OTHER, '"The gate is «blue»"')).encode(encoding)
    clean = scrubbed(data, [GONE], ["The vault code is nougat"])
    assert WORDS.encode() not in clean and WORDS.encode(encoding.removesuffix("-sig")) not in clean
    assert [p["content"] for p in json.loads(clean)["percepts"]] == ["The gate is «blue»"]


def test_a_percept_that_was_set_aside_alone_goes_whole_m20() -> None:
    data = one(GONE, json.dumps(WORDS)).encode()
    assert json.loads(scrubbed(data, [GONE], [])) == {}
    entry = f'{{"percept": {data.decode()}, "edges": [], "reason": "pruned"}}'
    assert json.loads(scrubbed(entry.encode(), [GONE], [])) == {}


def test_of_an_archive_the_entry_goes_and_what_it_had_superseded_stays_m20() -> None:
    entries = [
        f'{{"percept": {one(GONE, json.dumps(WORDS))}, "edges": [], "reason": "pruned"}}',
        f'{{"percept": {{"id": "{OTHER}", "content": "x"}}, "reason": "superseded", "successor": "{GONE}"}}',
    ]
    data = f'{{"archive": [{", ".join(entries)}]}}'.encode()
    (stays,) = json.loads(scrubbed(data, [GONE], [WORDS]))["archive"]
    assert stays["percept"]["id"] == OTHER and stays["reason"] == "superseded"
    clean = scrubbed(data[:-1], [GONE], [WORDS])
    assert not holding(clean, WORDS) and entries[1].encode() in clean, "and of a damaged one"


def test_a_value_hidden_behind_a_key_that_stands_twice_goes_m20() -> None:
    """Readers of JSON see one of the two."""
    twice = f'{{"id": "{OTHER}", "content": {json.dumps(WORDS)}, "content": "The gate is blue"}}'
    clean = scrubbed(document(twice, one(GONE, '"x"')).encode(), [GONE], [WORDS])
    assert holding(clean, WORDS) == [] and b"The gate is blue" in clean


# ---------------------------------------------------------------- a damaged one


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[:-3],
    "zeros at its end": lambda data: data[:-3] + bytes(40),
    "a bracket lost": lambda data: data.replace(b"[", b"", 1),
    "a quote lost": lambda data: data.replace(b'"percepts"', b'"percepts', 1),
    "no number": lambda data: data.replace(b"1e400", b"NaN"),
    "two put together": lambda data: data + data,
}


@pytest.mark.parametrize("words", [WORDS, "The vault code is nougat"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("line", ["", "\n  "])
def test_of_a_damaged_file_the_percept_is_blanked_and_the_others_stay_m20(
    spelling: str, damage: str, last: bool, words: str, line: str
) -> None:
    spell = SPELLINGS[spelling]
    others = ["The «gate» is {blue}", f"see {GONE}", "brace } yourself"]
    said = [one(f"{n}" * 8, spell(other)) for n, other in enumerate(others, 4)]
    data = DAMAGE[damage](document(said[0], one(GONE, spell(WORDS), last=last), *said[1:], line=line).encode())
    assert holding(data, WORDS)
    clean = scrubbed(data, [GONE], [words])
    assert holding(clean, WORDS) == []
    assert len(clean) == len(data), "blanked in its place"
    for other in said:
        assert other.encode() in clean
    assert f'"percept_ids": ["{GONE}", "{OTHER}"]'.encode() in clean, "an engram is no percept's alone"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_earlier_wording_that_is_cut_off_in_its_midst_is_blanked_m20(spelling: str) -> None:
    whole = document(one(OTHER, '"The gate is blue"'), one(GONE, SPELLINGS[spelling](f"{WORDS} marzipan {WORDS}")))
    end = whole.index("marzipan") if "marzipan" in whole else whole.index(GONE) + 300
    for lost in range(40):
        clean = scrubbed(whole[: end + 8 - lost].encode(), [GONE], ["The vault code is nougat"])
        assert b"The gate is blue" in clean
        assert clean.rstrip().endswith(b","), "of the other not a byte"


EARLIER = "Once it said marzipan"
LOST: dict[str, str] = {
    "spaces around the colon": f'{{"id" :  "{GONE}", "content": "{EARLIER}"}}',
    "a line break after the colon": f'{{"id":\n"{GONE}",\n"content": "{EARLIER}"}}',
    "an id spelled otherwise": f'{{"id": "{throughout(GONE)[1:-1]}", "content": "{EARLIER}"}}',
    "deep fields of others before it": f'{{"x": {{"y": {{"z": [1]}}}}, "id": "{GONE}", "content": "{EARLIER}"}}',
    "deep fields of others after it": f'{{"id": "{GONE}", "x": {{"y": {{"z": [{{}}]}}}}, "content": "{EARLIER}"}}',
    "its first brace lost": f'x"id": "{GONE}", "content": "{EARLIER}"}}',
    "its last brace lost": f'{{"id": "{GONE}", "content": "{EARLIER}", "w": 0.7',
    "the id's first quote lost": f'{{"id": {GONE}", "content": "{EARLIER}", "w": 0.7}}',
    "the id's last quote lost": f'{{"id": "{GONE}, "content": "{EARLIER}", "w": 0.7}}',
    "a quote of the words lost": f'{{"id": "{GONE}", "content": {EARLIER}", "w": 0.7}}',
}


@pytest.mark.parametrize("line", ["", "\n  "])
@pytest.mark.parametrize("lost", LOST)
def test_where_a_percept_itself_is_damaged_it_goes_and_the_others_stay_m20(lost: str, line: str) -> None:
    others = [one(f"{n}" * 8, f'"Say {n}"') for n in range(2, 6)]
    data = document(*others[:2], LOST[lost], *others[2:], line=line).encode() + b"]"
    clean = scrubbed(data, [GONE], ["nougat"])
    assert b"marzipan" not in clean and len(clean) == len(data)
    for other in others:
        assert other.encode() in clean


@pytest.mark.parametrize(
    "unit",
    [b'"{\\"a\\":1}", ', b'{\\"', b'{"', b'"a', b"[{", b'\\"', b'"x\n', b"[" * 150_000 + b"}" * 150_000],
    ids=lambda unit: repr(unit[:9]),
)
def test_what_a_damaged_file_costs_grows_with_its_length(unit: bytes) -> None:
    begin = time.monotonic()
    data = unit * (300_000 // len(unit)) + f'{{"id": "{GONE}", "content": "{EARLIER}"'.encode()
    assert b"marzipan" not in scrubbed(data, [GONE], ["nougat"])
    assert time.monotonic() - begin < 10.0, "a minute, where each brace is followed to the end"


@settings(max_examples=300, deadline=None)
@given(
    words=st.text(st.characters(exclude_categories=["Cs"]), min_size=3, max_size=12).filter(lambda t: t == t.strip()),
    spelling=st.sampled_from(sorted(SPELLINGS)),
    at=st.floats(0, 1),
    junk=st.binary(max_size=2),
    line=st.sampled_from(["", "\n  "]),
)
@example(words='"}{', spelling="milkd", at=0.0, junk=b"", line="")
def test_wherever_a_file_is_damaged_the_present_words_are_in_it_no_longer_m20(
    words: str, spelling: str, at: float, junk: bytes, line: str
) -> None:
    marked = f"¡{words}!"
    text = document(one(OTHER, '"x"'), one(GONE, SPELLINGS[spelling](marked)), line=line).encode()
    begin = int(at * len(text))
    data = text[:begin] + junk + text[begin + 1 :]
    assert holding(scrubbed(data, [GONE], [marked]), marked) == []


# ---------------------------------------------------------------- journals


def with_wordings(root: Path) -> tuple[Kept, str, str]:
    """A percept with two earlier wordings, one that mentions its words, and one that is its near miss."""
    world = Kept(root)
    gone = world.ask(wire.Record(session="s", content=WORDS)).percept.id
    world.ask(wire.Edit(target=gone, content="The safe holds {praline}"))
    world.ask(wire.Edit(target=gone, content="nougat"))
    world.ask(wire.Record(session="s", content="Sweets like nougat are kept in the cellar"))
    near = world.ask(wire.Record(session="s", content="Nougat is not kept in the cellar", by="me", id=1))
    assert near.outcome == "new"
    return world, gone, near.percept.id


EVERY_WORDING = (WORDS, "The safe holds {praline}")


def in_journal(data: bytes, gone: str) -> list[str]:
    """What the records of a journal say of a percept."""
    return [
        cell.record.content
        for _, effects in scan(data).records
        for table, key, cell in effects
        if table == "percept" and key == gone and cell is not None
    ]


JOURNALS = [
    f"aside/{DATE}-journal",
    f"aside/{DATE}-journal.2",
    f"aside/.{DATE}-journal.tmp",
    "journal.sync-conflict-20261130-101112-ABCDEFG",
    "journal (ada's conflicted copy 2026-11-30)",
    f"{registry.BEFORE}{DATE}/journal",
]


@pytest.mark.parametrize("place", JOURNALS)
@pytest.mark.parametrize("damaged", [False, True])
def test_a_copy_of_a_journal_loses_every_wording_and_no_record_of_others_m20(
    tmp_path: Path, place: str, damaged: bool
) -> None:
    world, gone, near = with_wordings(tmp_path)
    data = (world.memory / "journal").read_bytes()
    assert in_journal(data, gone) == [*EVERY_WORDING, "nougat"]
    before = len(scan(data).records)
    if damaged:  # the record of the second wording cannot be read any more
        at = data.index(b"holds {praline}")
        data = data[:at] + b"H" + data[at + 1 :]
    copy = world.memory / place
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(data)
    assert scrub(world.memory, [gone], ["nougat"]) == 1
    clean = copy.read_bytes()
    assert not any(holding(clean, words) for words in (*EVERY_WORDING, "praline", "vault"))
    assert b"Sweets like nougat are kept" in clean and b"Nougat is not kept" in clean
    assert in_journal(clean, near) and len(clean) == len(data)
    assert len(scan(clean).records) == before - 3, "one record for each wording"
    assert scrub(world.memory, [gone], ["nougat"]) == 0, "again = no change"


def test_a_copy_of_a_journal_with_a_damaged_head_or_of_a_later_version_is_searched_m20(tmp_path: Path) -> None:
    world, gone, _ = with_wordings(tmp_path)
    data = (world.memory / "journal").read_bytes()
    folder = world.memory / "aside"
    folder.mkdir()
    (folder / f"{DATE}-journal").write_bytes(b"MALKJRNL" + data[8:])
    (folder / f"{LATER}-journal").write_bytes(data[:8] + (99).to_bytes(4, "little") + data[12:])
    assert scrub(world.memory, [gone], ["nougat"]) == 2
    for path in folder.iterdir():
        assert not any(holding(path.read_bytes(), words) for words in EVERY_WORDING)
    assert b"Sweets like nougat" in (folder / f"{DATE}-journal").read_bytes()


def test_an_archived_percept_s_record_goes_and_one_of_the_same_words_too_m20(tmp_path: Path) -> None:
    world = Kept(tmp_path)
    old = world.ask(wire.Record(session="s", content=WORDS)).percept.id
    world.ask(wire.Record(session="s", content="The gate is blue", replaces=old))
    world.ask(wire.RenameSession(old="s", new="u"))  # writes down who is archived, alone
    folder = world.memory / "aside"
    folder.mkdir()
    copy = folder / f"{DATE}-journal"
    shutil.copy(world.memory / "journal", copy)
    assert scrub(world.memory, [old], ["nougat"]) == 1
    assert holding(copy.read_bytes(), WORDS) == []
    world.ask(wire.Record(session="t", content=WORDS))
    shutil.copy(world.memory / "journal", copy)
    assert scrub(world.memory, [old], [WORDS]) == 1
    assert holding(copy.read_bytes(), WORDS) == []


def test_spans_cover_a_journal_without_a_gap(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "journal")
    kept.read()
    for number in range(4):
        kept.append([("meta", f"key {number}", float(number))])
    kept.close()
    data = bytearray((tmp_path / "journal").read_bytes())
    data[data.index(b"key 1")] ^= 1
    spans = journal.spans(bytes(data))
    assert [effects and effects[0][1] for _, _, effects in spans] == ["key 0", None, "key 2", "key 3", None]
    assert [begin for begin, _, _ in spans[1:]] == [end for _, end, _ in spans[:-1]]
    assert spans[0][0] == 16 and spans[-1][1] == len(data)


# ---------------------------------------------------------------- a home


def home_with_copies(root: Path) -> tuple[Kept, str]:
    """A home in which what will be forgotten stands in every kind of file; and who it is."""
    world = furnished(root)
    memory = world.memory
    gone = world.ask(wire.Record(session="s", content=WORDS, subject="sweets")).percept.id
    assert not world.files().error
    earlier = (memory / "s.json").read_bytes()
    world.ask(wire.Edit(target=gone, content="The vault code is {nougat} now"))
    assert not world.files().error
    present = (memory / "s.json").read_bytes()
    for folder in ("aside", f"{registry.BEFORE}{LATER}", f"{registry.BEFORE}{LATER}/deeper"):
        (memory / folder).mkdir()
    places = [
        f"aside/{DATE}-s.json",
        f"aside/{DATE}-s.json.2",
        f"aside/.{DATE}-t.json.tmp",
        f"{registry.BEFORE}{LATER}/s.json",
        f"{registry.BEFORE}{LATER}/deeper/s.json",
        "s.sync-conflict-20261130-101112-ABCDEFG.json",
        "s (ada's conflicted copy 2026-11-30).json",
        "s (conflict 2026-11-30-10-11-12).json",
    ]
    for number, place in enumerate(places):
        data = (earlier, present)[number % 2]
        (memory / place).write_bytes(data[:-9] if number % 3 == 2 else data)
    shutil.copy(memory / "journal", memory / f"aside/{DATE}-journal")
    shutil.copy(memory / "journal", memory / "journal.new")  # a compaction that a crash ended
    (memory / ".s.json.1.tmp").write_bytes(present)  # and a set
    return world, gone


OTHERS = {
    "notes.txt": WORDS.encode(),
    "s.json~": b"The vault code is {nougat} now",
    ".s.json.swp": b"The vault code is {nougat} now",
    ".notes.tmp": WORDS.encode(),
    "my notes.json": json.dumps({"percepts": [percept(1, WORDS)]}).encode(),
    "vault/s.json": json.dumps({"percepts": [percept(1, WORDS)]}).encode(),
    ".git/objects/s.json": WORDS.encode(),
}
"""Files beside ours that milkd never wrote."""


def test_what_is_forgotten_is_in_no_file_and_all_others_are_where_they_were_m20(tmp_path: Path) -> None:
    world, gone = home_with_copies(tmp_path)
    memory = world.memory
    for name, data in OTHERS.items():
        (memory / name).parent.mkdir(parents=True, exist_ok=True)
        (memory / name).write_bytes(data)
    others = contents(world) - {"The vault code is {nougat} now"}
    before = {name: data for name, data in bytes_in(memory).items() if name not in OTHERS}
    assert sum(bool(holding(data, WORDS) or b"nougat" in data) for data in before.values()) >= 12
    world.ask(wire.Forget(ids=[gone]))
    assert not world.files().error
    after = bytes_in(memory)
    assert {name: after.pop(name) for name in OTHERS} == OTHERS, "not milkd's"
    assert set(left(world)) <= OTHERS.keys()
    for name in before.keys() & after.keys():
        if name.startswith(("aside", registry.BEFORE, "s ", "s.")):
            missing = [
                words for words in others if words.encode() in before[name] and words.encode() not in after[name]
            ]
            assert not missing, name
    unfinished = {".s.json.1.tmp", "journal.new"}
    assert before.keys() - unfinished == after.keys(), "no copy is removed"
    assert contents(world) == contents(world.again()) == others


def test_a_start_and_its_sets_leave_the_files_of_other_programs_alone(tmp_path: Path) -> None:
    world = furnished(tmp_path)
    for name, data in OTHERS.items():
        (world.memory / name).parent.mkdir(parents=True, exist_ok=True)
        (world.memory / name).write_bytes(data)
    again = world.again()
    again.ask(wire.Record(session="s", content="Bread comes on Tuesdays"))
    assert not again.files().error
    found = bytes_in(again.memory)
    assert {name: found.get(name) for name in OTHERS} == OTHERS


@pytest.mark.parametrize("valid", [True, False])
def test_an_edit_of_an_old_copy_that_is_refused_is_set_aside_without_it_m20(tmp_path: Path, valid: bool) -> None:
    """An editor held the file open while it was forgotten, and saves it."""
    world = furnished(tmp_path)
    gone = world.ask(wire.Record(session="s", content=WORDS)).percept.id
    world.files()
    old = (world.memory / "s.json").read_bytes()
    world.ask(wire.Edit(target=gone, content="The vault code is {nougat} now"))
    world.ask(wire.Forget(ids=[gone]))
    world.files()
    (world.memory / "s.json").write_bytes(old if valid else old.replace(b'"percepts"', b'"percepts', 1))
    assert world.look("s.json") == 0
    world.advance(60.0)
    world.look("s.json")
    world.files()
    for _ in range(2):
        found = bytes_in(world.memory)
        assert not any(holding(data, WORDS) for data in found.values())
        assert any(b"Backups run at noon" in data for name, data in found.items() if name.startswith("aside/"))
        world = world.again()


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"\xff" + data])
def test_a_copy_that_was_put_back_and_cannot_be_read_is_set_aside_without_it_m20(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    world = furnished(tmp_path)
    gone = world.ask(wire.Record(session="s", content=WORDS)).percept.id
    world.files()
    old = (world.memory / "s.json").read_bytes()
    world.ask(wire.Forget(ids=[gone]))
    world.files()
    world.ask(wire.Record(session="s", content="Bread comes on Tuesdays"))
    world.die()
    (world.memory / "s.json").write_bytes(damage(old))
    again = Kept(tmp_path, after=world)
    assert again.loaded.problems and b"Backups run at noon" in again.aside()["s.json"]
    assert not again.files().error
    assert not any(holding(data, WORDS) for data in bytes_in(again.memory).values())


def test_a_whole_copy_of_every_file_that_was_put_back_brings_nothing_back_m20(tmp_path: Path) -> None:
    world = furnished(tmp_path / "home")
    gone = world.ask(wire.Record(session="s", content=WORDS)).percept.id
    old = next(iter(world.store.archive))
    world.files()
    names = ["s.json", "archive.json", "global.json"]
    copies = {name: (world.memory / name).read_bytes() for name in names}
    world.ask(wire.Forget(ids=[gone, old]))
    world.files()
    world.die()
    for name, data in copies.items():
        (world.memory / name).write_bytes(data)
    again = Kept(tmp_path / "home", after=world)
    assert not {gone, old} & {*again.store.percepts, *again.store.archive}
    assert not again.files().error
    for data in bytes_in(again.memory).values():
        assert not holding(data, WORDS) and b"Host is falcon" not in data


def left(world: Kept) -> list[str]:
    """The files in which it still stands, in any wording."""
    return [name for name, data in bytes_in(world.memory).items() if holding(data, WORDS) or b"nougat" in data]


@pytest.mark.parametrize("how", ["once", "for good", "power cut"])
def test_a_forget_that_fails_at_any_step_is_done_when_it_is_answered_to_who_asks_again_m20(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: How
) -> None:
    """The change itself is on disk by then, so that the request asked again changes nothing more."""
    disk = Disk(monkeypatch)
    leftover = 0
    for number in itertools.count():
        world, gone = home_with_copies(tmp_path / f"{number}")
        request = wire.Forget(ids=[gone], by="me", id=7)
        world.ask(request)
        disk.begin(number, how)
        failed = True
        with contextlib.suppress(PowerCut):
            failed = world.files().error is not None
        if not disk.mend(world.memory):
            break
        assert failed or not left(world), "what is answered is done"
        leftover += bool(left(world))
        if how == "power cut":
            world = world.again()
        assert world.ask(request).ids == [gone]
        assert not world.files().error
        assert not left(world), disk.steps[number]
        world.die()
        shutil.rmtree(tmp_path / f"{number}")
    assert leftover > 60


def test_what_was_forgotten_before_a_crash_is_looked_for_once_and_not_at_every_start_m20(tmp_path: Path) -> None:
    world, gone = home_with_copies(tmp_path)
    world.ask(wire.Forget(ids=[gone]))
    world = world.again()
    assert left(world)
    assert not world.files().error
    assert not left(world)
    world.ask(wire.Record(session="s", content="Bread comes on Tuesdays"))
    world = world.again()
    assert not [key for key in world.store.meta if key.startswith(UNSCRUBBED)]


# ---------------------------------------------------------------- setting aside


def test_what_is_set_aside_is_private_kept_once_and_never_written_over(tmp_path: Path) -> None:
    paths = [registry.set_aside(tmp_path, "s.json", data, DATE) for data in (b"one", b"two", b"one", b"two", b"three")]
    assert [path.name for path in paths] == [f"{DATE}-s.json{end}" for end in ("", ".2", "", ".2", ".3")]
    assert {path.read_bytes() for path in paths} == {b"one", b"two", b"three"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    assert (tmp_path / "aside").stat().st_mode & 0o777 == 0o700
    assert sorted(registry.keepsakes(tmp_path)) == sorted(set(paths))


def test_a_file_that_cannot_be_written_leaves_no_half_of_it(tmp_path: Path) -> None:
    def pieces() -> Any:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        registry.write_file(tmp_path / "s.json", pieces())
    assert not list(tmp_path.iterdir())
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(OSError, match="link"):
        registry.write_file(tmp_path / "link", [b"ours"])
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"
