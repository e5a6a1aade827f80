"""What is printed, from structs: safe, aligned, in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from milk_client import Recording, wire
from milkctl import show, show_explain, show_export, show_facts, show_status
from milkctl.show import Style

NOON = "2025-03-02T12:00:00Z"
NOW = 1740916800.0
PLAIN = Style(now=NOW)
RUN = wire.RunLine(run="ab12cd34ef", session="app", role="primary", pid=99, since=NOON, silent_s=1.0, command="claude")
TERMINAL = Style(color=True, width=60, now=NOW)


def percept(content: str = "The user prefers uv", **fields: Any) -> wire.Percept:
    given = {
        "id": "1f3a9c21-0000-4000-8000-000000000000",
        "content": content,
        "producer": "user",
        "w": 0.9,
        "w_confirmed": 0.9,
        "created_at": NOON,
        "updated_at": NOON,
        "scope": "session",
        "session": "app",
        "rank_score": 0.99,
    }
    return wire.Percept(**{**given, **fields})


# ---------------------------------------------------------------- safe text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain ü 你好", "plain ü 你好"),
        ("\x1b[31mred\x07\r\n", "␛[31mred␇␍␊"),
        ("\x9b2J\x7f", "\\x9b2J␡"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\ud800", "\\ud800"),
        ("a\u00a0b\u200dc", "a\u00a0b\u200dc"),
    ],
)
def test_nothing_drives_the_terminal(text: str, seen: str) -> None:
    assert show.visible(text) == seen


def test_lines_stay_lines() -> None:
    assert show.visible_lines("one\n\x1btwo") == "one\n␛two"


def test_no_printer_lets_a_control_character_through() -> None:
    bad = "x\x1b]0;t\x07y"
    one = percept(bad, roles={"theme": bad}, session=bad)
    record = msgspec.convert({k: getattr(one, k) for k in wire.PerceptRecord.__struct_fields__}, wire.PerceptRecord)
    edge = wire.Edge("a" * 8, one.id, "contradicts")
    gone = wire.Archived(record, [edge], "pruned", NOON, bad)
    told = [
        show_facts.listing([one], "app", PLAIN),
        show_facts.recalled([one], PLAIN),
        show_facts.shown(wire.Shown(percept=msgspec.structs.replace(one, extra={bad: bad}), archived=gone), PLAIN),
        show_facts.archive([gone], PLAIN),
        show_facts.conflicts([wire.Conflict(one, one, edge)], PLAIN),
        show_facts.recording(
            Recording(id=one.id, outcome="new", percept=one, near=[wire.Near(one, bad)]), bad, [], PLAIN
        ),
        show_status.sessions(
            [wire.SessionLine(session=bad, percepts=1, archived=1, clock_s=1.0, live_runs=1)], "", PLAIN
        ),
        show_status.passed(wire.Report(session=bad), PLAIN),
        show_export.markdown(
            {
                "global": {"percepts": [msgspec.to_builtins(one)], "edges": [], "engrams": []},
                "sessions": {},
                "archive": [],
            }
        ),
    ]
    for text in told:
        assert not {"\x1b", "\x07"} & set(text), text
        assert "x␛" in text


# ---------------------------------------------------------------- quantities


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "none"),
        (0.2, "less than a second"),
        (1, "1 second"),
        (61, "1 minute 1 second"),
        (59.7, "1 minute"),
        (3599.6, "1 hour"),
        (86400 * 13.9999, "14 days"),
        (7500, "2 hours 5 minutes"),
        (86400 * 3 + 3600, "3 days 1 hour"),
        (86400 * 12 + 3600, "12 days"),
    ],
)
def test_spans_are_words(seconds: float, words: str) -> None:
    assert show.span(seconds) == words


@pytest.mark.parametrize(
    ("before", "words"),
    [(1, "just now"), (30, "30 seconds ago"), (60, "1 minute ago"), (7200, "2 hours ago"), (86400 * 3, "3 days ago")],
)
def test_points_in_time_are_words(before: float, words: str) -> None:
    assert show.ago(NOON, NOW + before) == words


def test_what_is_no_date_is_shown_as_it_is() -> None:
    assert show.ago("soon\x1b", NOW) == "soon␛"
    assert show.ago("", NOW) == "never"
    assert show.ago(NOON, NOW - 86400) == "on 2025-03-02"


def test_sizes_are_words() -> None:
    assert [show.size(n) for n in (1, 999, 2048, 3 << 20)] == ["1 byte", "999 bytes", "2.0 KiB", "3.0 MiB"]


# ---------------------------------------------------------------- layout


def test_columns_are_aligned_whatever_their_width() -> None:
    lines = show.table([["你好", "x"], ["a", ("y", "red")]], PLAIN, indent="")
    assert lines == ["你好  x", "a     y"]


def test_the_last_column_is_wrapped_on_a_terminal_only() -> None:
    long = "word " * 30
    assert len(show.table([["a", long]], PLAIN)) == 1
    lines = show.table([["a", long]], TERMINAL)
    assert len(lines) > 1
    assert all(show.columns(line) <= 60 for line in lines)
    assert lines[1].startswith("     word")


def test_colours_only_where_asked_for() -> None:
    assert "\x1b[" in show_facts.listing([percept()], "app", TERMINAL)
    assert "\x1b[" not in show_facts.listing([percept()], "app", PLAIN)


def test_wide_words_are_wrapped_too() -> None:
    assert all(show.columns(line) <= 60 for line in show.wrapped("你好 " * 40, TERMINAL))


# ---------------------------------------------------------------- facts


def test_a_near_miss_names_the_commands_that_settle_it() -> None:
    old = percept("The host is falcon", id="77b0aaaa-0000-4000-8000-000000000000")
    new = percept("It's osprey")
    done = Recording(id=new.id, outcome="new", percept=new, near=[wire.Near(old, "replaced")])
    style = Style(now=NOW, program="milkctl --home /x")
    text = show_facts.recording(done, "It's osprey", ["--session", "app"], style)
    again = "milkctl --home /x record --session app 'It'\"'\"'s osprey' --same-as 77b0aaaa"
    assert f"{again} && milkctl --home /x forget 1f3a9c21" in text
    assert "milkctl --home /x link 1f3a9c21 77b0aaaa updates --supersede" in text
    assert "milkctl --home /x link 1f3a9c21 77b0aaaa contradicts" in text
    assert "replaced: a word was swapped for another" in text


def test_a_conflict_with_what_is_global_says_how_to_settle_it() -> None:
    done = Recording(id="1" * 8, outcome="new", percept=percept(), near=[], superseded="", conflicts_with="77b0aaaa-1")
    assert "`milkctl conflicts`" in show_facts.recording(done, "x", [], PLAIN)


def test_edges_are_told_from_either_end() -> None:
    edge = wire.Edge("aaaaaaaa-1", "bbbbbbbb-2", "extends", propagated=2)
    assert show.edge_text(edge, "aaaaaaaa-1") == "extends #bbbbbbbb (acted in 2 sittings)"
    assert show.edge_text(edge, "bbbbbbbb-2") == "is extended by #aaaaaaaa (acted in 2 sittings)"


# ---------------------------------------------------------------- explain


def explained(**fields: Any) -> str:
    given: dict[str, Any] = {
        "percept": percept(evidence=1, evidence_at=NOON),
        "clock_s": 100.0,
        "half_life_days": 3.0,
        "w_confirmed": 0.75,
        "decayed_by": 0.05,
        "lived_s": 7200.0,
        "r": 0.1,
        "e": 0.05,
        "age_days": 2.0,
        "may_add_evidence": ["ab12 (app, primary)"],
        "may_not_add_evidence": ["cd34 (app, primary)"],
        "promotion": "held back by lack of evidence",
        "holds": ["evidence 1 of 2: a run must restate it"],
        "leaves": "pruned",
        "leaves_in_running_s": 86400.0,
        "leaves_in_wall_s": 86400.0 * 4,
    }
    return " ".join(show_explain.explained(wire.Explained(**{**given, **fields}), PLAIN).split())


def test_explained_in_sentences() -> None:
    text = explained()
    assert "0.90 now, 0.75 as last confirmed. It lost 0.05 in the 2 hours of running time" in text
    assert "It halves in 3 days of running time." in text
    assert "May still add to it by saying the same: run ab12 (app, primary)." in text
    assert "may not: run cd34 (app, primary)." in text
    assert "= 0.900 strength × 1.100 for being stated 2 days ago × 1.05 for evidence." in text
    assert "Not global yet: evidence 1 of 2: a run must restate it." in text
    assert "after 1 day more of running time (agents attached): at today's pace in 4 days." in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"promotion": "at the next pass", "holds": []}, "It becomes global at the next pass."),
        ({"promotion": "global", "leaves": "stale"}, "Unused, it goes to the archive after 1 day"),
        ({"leaves": "never", "leaves_in_running_s": None}, "It does not leave by itself"),
        ({"leaves_in_wall_s": None}, "there is no pace yet"),
        ({"promotion": "archived", "leaves": "archived", "archived_reason": "pruned"}, "`milkctl restore 1f3a9c21`"),
        ({"percept": percept(core=True), "leaves": "never"}, "It stays until it is unpinned or forgotten."),
        ({"may_add_evidence": [], "may_not_add_evidence": []}, "No live run could add to it now"),
        ({"lived_s": 0.0, "decayed_by": 0.0}, "Hardly any running time has passed since it was last set."),
    ],
)
def test_each_fate_has_its_sentence(fields: dict[str, Any], words: str) -> None:
    assert words in explained(**fields)


# ---------------------------------------------------------------- status


def statused(**fields: Any) -> wire.Statused:
    given: dict[str, Any] = {
        "pid": 4711,
        "version": "0.1.0",
        "protocol": 1,
        "home": "/home/u/.milk",
        "started_at": NOON,
        "uptime_s": 7500.0,
        "health": [],
        "clocks": {"global_s": 3600.0, "sessions": {"app": 1800.0}},
        "runs": [RUN],
        "seen": [wire.SeenLine(session="app", role="primary", last_turn=NOON)],
        "counts": {"global": 3, "core": 1, "sessions": {"app": 2}, "archive": 4, "edges": 1, "conflicts": 1},
        "last_pass": wire.Report(session="app", promoted=2, promotion_deferred=1, deferred_for={"evidence": 1}),
        "last_pass_at": NOON,
        "journal": {"bytes": 2048},
        "files": {"global.json": 4096, "journal": 1 << 20},
    }
    return wire.Statused(**{**given, **fields})


def test_status_begins_with_health() -> None:
    assert show_status.status(statused(), PLAIN).startswith("Health: good\n")
    ill = show_status.status(statused(health=["the disk is full"]), PLAIN)
    assert ill.startswith("Health: 1 problem\n  ! the disk is full")


def test_status_tells_what_a_person_looks_for() -> None:
    text = show_status.status(statused(), PLAIN)
    for words in (
        "0.1.0, pid 4711, up 2 hours 5 minutes",
        "ab12cd34  99   app      primary  just now  heard just now, claude",
        "app      primary  never     never     just now",
        "global  3 (1 core)  1 hour",
        "app     2           30 minutes",
        "4 archived, 1 edge, 1 unresolved contradiction",
        "2 promoted to global, 1 held back (1 by lack of evidence)",
        "journal      2.0 KiB, room for 1.0 MiB",
        "global.json  4.0 KiB",
    ):
        assert words in text


def test_status_of_a_fresh_home_has_words_for_nothing() -> None:
    text = show_status.status(statused(runs=[], seen=[], last_pass=None), PLAIN)
    assert "No agent is attached: no clock moves." in text
    assert "None yet." in text


def test_many_sessions_are_cut() -> None:
    sessions = {f"s{n:02}": 1 for n in range(20)}
    found = statused(counts={"sessions": sessions}, clocks={})
    assert "and 8 sessions more: `milkctl sessions`" in show_status.status(found, PLAIN)


def test_the_config_reads_as_a_file() -> None:
    found = wire.ConfigShown(values={"memory": {"a": 1.5, "policy": "x"}}, source="defaults", rejected="a: bad")
    text = show_status.config(found, PLAIN)
    assert text.startswith("# Not in force")
    assert text.endswith('[memory]\na      = 1.5\npolicy = "x"')
