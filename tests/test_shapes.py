"""What stands in a file survives being read and written: numbers to the last bit, fields of others as written (M3)."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import DATE, Kept

from milkd import shapes
from milkd.config import Memory
from milkd.rules.percept import Group, Link
from milkd.rules.present import Present

WHEN = "2026-01-05T09:00:00Z"
IDS = ("a1b2", "c3d4", "e5f6")

# ---------------------------------------------------------------- JSON as anybody may spell it

spaces = st.text(" \t\n", max_size=2)
numbers = st.one_of(
    st.sampled_from(["1.50", "1e2", "1E+2", "-0", "-0.0", "3e400", "12345678901234567890123", "0.1000000000000000055"]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
words = st.text(st.characters(codec="utf-8"), max_size=6)
spelled = st.builds(lambda text, ascii_only: json.dumps(text, ensure_ascii=ascii_only), words, st.booleans())
strings = st.one_of(spelled, st.sampled_from(['"\\/"', '"\\u00e9\\ud83d\\ude00"', '"\\b\\u0000"']))
atoms = st.one_of(numbers, strings, st.sampled_from(["null", "true", "false", "[]", "{}", "[ ]"]))


def listed(items: list[str], space: str) -> str:
    return f"[{space}" + f"{space},".join(items) + f"{space}]"


def braced(fields: list[tuple[str, str]], space: str = "") -> str:
    """An object of keys and the texts of their values."""
    return "{" + f",{space}".join(f"{json.dumps(key)}{space}:{space}{value}" for key, value in fields) + space + "}"


values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(listed, st.lists(inner, min_size=1, max_size=3), spaces),
        st.builds(braced, st.lists(st.tuples(words, inner), max_size=3, unique_by=lambda f: f[0]), spaces),
    ),
    max_leaves=6,
)
names = st.text(st.characters(codec="utf-8"), max_size=4).map("x".__add__) | st.text(string.printable, max_size=3)
names = names.filter(lambda name: name not in ("id", "w", "at", "to"))  # milkd's own of that length
unknown = st.dictionaries(names, values, max_size=2)
strengths = st.floats(0.0, 1.0)


def known(pairs: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key, json.dumps(value)) for key, value in pairs.items()]


@st.composite
def things(draw: st.DrawFn, of: dict[str, Any]) -> str:
    """An object with these fields and some of others, in any order."""
    fields = draw(st.permutations([*known(of), *draw(unknown).items()]))
    return braced(fields, draw(spaces))


@st.composite
def percepts(draw: st.DrawFn, number: int) -> str:
    fields = {"id": IDS[number], "content": draw(words) + "x", "created_at": WHEN, "updated_at": WHEN}
    fields |= {"w": draw(strengths), "w_confirmed": draw(strengths), "engram_id": "e1"}
    fields |= draw(
        st.sampled_from([{}, {"roles": {"theme": "bread", "mood": "é"}}, {"roles": {"agent": ["me", 1.50]}}])
    )
    fields |= draw(st.sampled_from([{}, {"evidence": 2, "consumer": "primary", "core": True}, {"last_used_at": WHEN}]))
    return draw(things(fields))


EDGE = {"from": IDS[0], "to": IDS[1], "relation": "extends"}
ENGRAM = {"id": "e1", "subject_label": "bread", "composite_w": 0.5, "percept_ids": list(IDS[:2])}
ENGRAM |= {"created_at": WHEN, "updated_at": WHEN}


@st.composite
def scope_files(draw: st.DrawFn) -> bytes:
    """A scope's file with fields of others at every level."""
    lists = [
        ("percepts", listed([draw(percepts(0)), draw(percepts(1))], draw(spaces))),
        ("engrams", listed([draw(things(ENGRAM))], draw(spaces))),
        ("edges", listed([draw(things(EDGE))], draw(spaces))),
    ]
    own = [("milkd", draw(things({"format": 1, "generation": 7, "clock_s": draw(st.floats(0, 1e9))})))]
    return braced(draw(st.permutations([*lists, *own, *draw(unknown).items()])), draw(spaces)).encode()


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """An archive with fields of others at every level."""
    entry = {"reason": "stale", "at": WHEN, "scope": "s"}
    inner = [("percept", draw(percepts(2))), ("edges", listed([draw(things({**EDGE, "to": IDS[2]}))], ""))]
    fields = draw(st.permutations([*known(entry), *inner, *draw(unknown).items()]))
    top = [("archive", listed([braced(fields)], draw(spaces))), ("milkd", draw(things({"format": 1})))]
    return braced(draw(st.permutations([*top, *draw(unknown).items()])), draw(spaces)).encode()


# ---------------------------------------------------------------- read, written, read


def write(parsed: shapes.Parsed) -> bytes:
    """A scope's file from what was read of one, as of the same clock."""
    clock = parsed.own.clock_s or 0.0
    at = Present(Memory(), lambda _: clock)
    held = [shapes.held_from(r, extra, "s", clock, clock, n) for n, (r, extra) in enumerate(parsed.percepts)]
    groups = [Group(e.id, e.subject_label, "s", e.created_at, e.updated_at, extra) for e, extra in parsed.engrams]
    parts = [
        ("percepts", [shapes.percept_json(at, one, 2) for one in held]),
        ("engrams", [shapes.engram_json(at, group, held, 2) for group in groups]),
        ("edges", [shapes.edge_json(Link(edge, n, extra), 2) for n, (edge, extra) in enumerate(parsed.edges)]),
    ]
    return b"".join(shapes.document(parts, parsed.own, parsed.extra))


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key stands twice: {pairs}"
    return found


@settings(max_examples=300, deadline=None)
@given(scope_files())
def test_a_scope_s_file_read_and_written_says_the_same_to_the_byte(data: bytes) -> None:
    first = shapes.parse(data)
    assert not first.wrong and len(first.percepts) == 2
    written = write(first)
    again = shapes.parse(written)
    assert again.percepts == first.percepts, "numbers to the last bit, and the bytes of fields of others"
    assert again.edges == first.edges and again.extra == first.extra and again.own == first.own
    assert [extra for _, extra in again.engrams] == [extra for _, extra in first.engrams]
    assert write(again) == written
    json.loads(written, object_pairs_hook=once)


@settings(max_examples=60, deadline=None)
@given(scope_files(), archives())
def test_fields_of_others_survive_a_start_and_a_stop_wherever_they_stand(
    tmp_path_factory: pytest.TempPathFactory, scope: bytes, archive: bytes
) -> None:
    memory = tmp_path_factory.mktemp("home") / "memory"
    memory.mkdir()
    files = {"s.json": scope, "archive.json": archive}
    for name, data in files.items():
        (memory / name).write_bytes(data)
    before = {name: extras(memory / name) for name in files}
    world = Kept(memory.parent)
    assert not world.loaded.problems
    for date in (DATE, "20260106T090000"):
        assert not world.files().error
        assert {name: extras(memory / name) for name in files} == before
        world = Kept(memory.parent, after=world, date=date)


def extras(path: Path) -> Any:
    """Every field of others in a file: where it stands, and its bytes."""
    data = path.read_bytes()
    if path.name != "archive.json":
        parsed = shapes.parse(data)
        lists: list[list[tuple[Any, dict[str, bytes]]]] = [parsed.percepts, parsed.engrams, parsed.edges]
        return parsed.extra, [[extra for _, extra in found] for found in lists]
    entries, extra, _, wrong = shapes.parse_archive(data)
    assert not wrong
    return extra, [(gone.extra, gone.held.extra, [link.extra for link in edges]) for gone, edges in entries]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1e9))
def test_strengths_and_clocks_are_the_same_bits_after_any_number_of_files(w: float, clock: float) -> None:
    name: Callable[[Any], str] = json.dumps
    data = f'{{"percepts": [{{"id": "a", "content": "x", "created_at": "", "updated_at": "", "w": {name(w)}}}],'
    data += f'"milkd": {{"clock_s": {name(clock)}}}}}'
    parsed = shapes.parse(data.encode())
    for _ in range(3):
        ((record, _),) = parsed.percepts
        assert (record.w, record.w_confirmed, parsed.own.clock_s) == (w, w, clock)
        parsed = shapes.parse(write(parsed))
