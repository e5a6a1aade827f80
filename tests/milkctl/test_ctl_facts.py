"""Stating, reading and changing facts by the real command, in text and JSON."""

from __future__ import annotations

import json

from ctl import Ctl

LEARNT = "Never commit secrets to the repository"


def test_learn_states_for_good(ctl: Ctl) -> None:
    text = ctl.ok("learn", LEARNT)
    assert text.startswith("New #")
    assert ", global, core: Never commit secrets" in text
    again = ctl.json("learn", LEARNT)
    assert (again["outcome"], again["percept"]["scope"], again["percept"]["core"]) == ("reinforced", "global", True)


def test_record_tells_what_became_of_it(ctl: Ctl) -> None:
    done = ctl.json("record", "The linter is ruff", "--producer", "system", "--subject", "tools")
    assert (done["outcome"], done["near"], done["percept"]["producer"]) == ("new", [], "system")
    assert done["percept"]["roles"] == {"theme": "tools"}
    assert "Reinforced #" in ctl.ok("record", "The linter is ruff.")


def test_a_near_miss_is_shown_and_its_commands_work(ctl: Ctl) -> None:
    old = ctl.record("The build host of the lab is falcon")
    text = ctl.ok("record", "The build host of the lab is osprey")
    assert f"#{old[:8]} says almost the same" in text
    line = next(line for line in text.splitlines() if "replaces it:" in line)
    words = line.split("milkctl ")[1].split()
    assert "is superseded and went to the archive" in ctl.ok(*words)
    assert ctl.json("show", old)["archived"]["reason"] == "superseded"


def test_same_as_and_replaces(ctl: Ctl) -> None:
    old = ctl.record("The port is 8080")
    assert ctl.json("record", "8080 it is", "--same-as", old[:8])["id"] == old
    done = ctl.json("record", "The port is 9090", "--replaces", f"#{old[:8]}")
    assert done["superseded"] == old


def test_text_from_standard_input(ctl: Ctl) -> None:
    assert "Pipes work\n" in ctl.ok("record", "-", stdin=b"Pipes work\n")
    assert ctl("record", "-", stdin=b"\xff").status == 2
    assert ctl("record", "-", stdin=b"x" * (1 << 20) + b"x").status == 1
    assert ctl.json("recall", "-", stdin=b"pipes")[0]["content"] == "Pipes work"


def test_recall_finds_and_counts_as_use(ctl: Ctl) -> None:
    identity = ctl.record("Deployments happen on Thursdays")
    assert "Deployments happen on Thursdays" in ctl.ok("recall", "deployments")
    found = ctl.json("recall", "deployments", "--max-results", "1", "--min-confidence", "0.1")
    assert [p["id"] for p in found] == [identity]
    assert {"scope", "rank_score", "w", "last_used_at"} <= found[0].keys()
    assert ctl.ok("recall", "xylophone").strip() == "Nothing that is remembered matches."
    assert ctl.json("recall", "xylophone") == []


def test_list_filters(ctl: Ctl) -> None:
    ctl.record("Another session has this", session="other")
    ctl.record("Listed fact about kiwis", producer="system")
    assert [p["content"] for p in ctl.json("list", "--pattern", "kiwi")] == ["Listed fact about kiwis"]
    assert ctl.json("list", "--pattern", "kiwi", "--min-w", "0.5") == []
    assert {p["scope"] for p in ctl.json("list", "--scope", "session")} == {"session"}
    assert {p["producer"] for p in ctl.json("list", "--producer", "system")} == {"system"}
    assert "Another session has this" not in ctl.ok("list")
    assert "Session other (1)" in ctl.ok("list", "--all-sessions")
    assert ctl.ok("list", "--session", "nobody", "--scope", "session").startswith("Nothing here")


def test_show_and_explain(ctl: Ctl) -> None:
    identity = ctl.record("The API is versioned by date", subject="api")
    text = ctl.ok("show", identity[:6])
    assert identity in text
    assert "subject    api (1 percept)" in text
    shown = ctl.json("show", identity)
    assert (shown["percept"]["id"], shown["edges"], shown["engram"]["subject_label"]) == (identity, [], "api")
    assert "re" not in shown
    assert "0.90 now, 0.90 as last confirmed." in ctl.ok("explain", identity)
    assert ctl.json("explain", identity)["promotion"] == "at the next pass"


def test_looking_is_no_use(ctl: Ctl) -> None:
    identity = ctl.record("Nobody uses this one")
    for words in (("list",), ("show", identity), ("explain", identity), ("conflicts",), ("export",)):
        ctl.ok(*words)
    assert "last_used_at" not in ctl.json("show", identity)["percept"]


def test_edit_pin_unpin(ctl: Ctl) -> None:
    identity = ctl.record("Cats are allowed")
    assert "Edited #" in ctl.ok("edit", identity, "Dogs are allowed")
    assert ctl.json("edit", identity, "-", stdin=b"Birds are allowed")["content"] == "Birds are allowed"
    assert "Pinned #" in ctl.ok("pin", identity)
    assert ctl.json("pin", identity)["core"] is True
    assert "Unpinned #" in ctl.ok("unpin", identity)
    assert "core" not in ctl.json("unpin", identity)


def test_link_conflicts_unlink(ctl: Ctl) -> None:
    one, two = ctl.record("Meetings are on Monday"), ctl.record("No meeting is ever held")
    assert ctl.ok("link", one, two, "contradicts") == f"Linked: #{one[:8]} contradicts #{two[:8]}.\n"
    assert ctl.json("link", one, two, "contradicts") == {"edge": ctl.json("conflicts")[0]["edge"], "created": False}
    text = ctl.ok("conflicts")
    assert f"milkctl link {one[:8]} {two[:8]} updates --supersede" in text
    assert f"milkctl unlink {one[:8]} {two[:8]} contradicts" in text
    assert "1 unresolved contradiction" in ctl.ok("status")
    assert ctl.ok("unlink", one, two, "contradicts") == "Removed 1 edge.\n"
    ctl.ok("link", one, two, "extends")
    assert ctl.json("unlink", one, two) == {"removed": 1}
    assert ctl.ok("conflicts") == "No contradictions.\n"
    assert ctl("unlink", one, two).status == 5


def test_the_archive_and_back(ctl: Ctl) -> None:
    one = ctl.record("The colour is blue")
    two = ctl.json("record", "The colour is green now", "--replaces", one, "--session", "app")["id"]
    entry = next(e for e in ctl.json("archive", "list") if e["percept"]["id"] == one)
    assert (entry["reason"], entry["successor"], entry["scope"], entry["edges"]) == ("superseded", two, "app", [])
    assert "The colour is blue" in ctl.ok("archive", "list", "--pattern", "blue")
    assert "The colour is blue" in ctl.ok("archive", "list", "--pattern", "blue", MILK_SESSION="elsewhere")
    assert ctl.json("archive", "list", "--session", "elsewhere") == []
    assert "`milkctl restore" in ctl.ok("show", one)
    assert "brings it back" in ctl.ok("explain", one)
    assert "Restored #" in ctl.ok("restore", one)
    assert ctl("restore", one).status == 2
    assert ctl.json("restore", ctl.json("record", "The colour is red", "--replaces", one)["superseded"])["id"] == one


def test_forget_goes_on_past_what_fails(ctl: Ctl) -> None:
    one, two = ctl.record("A secret of zebras"), ctl.record("A riddle of yaks")
    done = ctl("forget", "ffffffff", one, "zz")
    assert "nothing was changed" not in done.err
    assert done.status == 5
    assert done.out.startswith(f"Forgotten: #{one[:8]}")
    assert done.err.count("milkctl: ") == 2
    told = ctl("--json", "forget", two, "ffffffff")
    assert (told.status, told.json["forgotten"]) == (5, [two])
    assert told.json["failed"][0]["error"]["code"] == "not_found"
    held = [path for path in ctl.home.rglob("*") if path.is_file() and b"secret of zebras" in path.read_bytes()]
    assert held == []


def test_inject_prints_the_block_alone(ctl: Ctl) -> None:
    ctl.ok("learn", LEARNT)
    text = ctl.ok("inject", "commit the secrets")
    assert text.startswith("<memory>\n")
    assert LEARNT in text
    block = ctl.json("inject", "-", "--relevant", stdin=b"commit")
    assert block["text"].startswith("<memory>\n")
    assert LEARNT in [p["content"] for p in block["percepts"]]


def test_escape_sequences_are_seen_in_text_and_exact_in_json(ctl: Ctl) -> None:
    content = "Beware of \x1b[31mred\x1b[0m text\u202e"
    identity = ctl.record(content)
    for words in (("list",), ("show", identity), ("explain", identity), ("recall", "beware")):
        text = ctl.ok(*words)
        assert "␛[31mred" in text
        assert "\x1b" not in text
    assert ctl.json("show", identity)["percept"]["content"] == content
    ctl.ok("forget", identity)


def test_exit_statuses(ctl: Ctl) -> None:
    assert ctl("show", "ffffffff").status == 5
    assert ctl("show", "xyz").status == 2
    assert ctl("record", "").status == 2
    assert ctl("record", "x" * 3000).status == 1
    assert ctl("list", "--session", "a/b").status == 2
    assert ctl("list", "--min-w", "2").status == 2
    assert ctl("pin", ctl.record("Agents may not pin it"), MILK_ROLE="primary").status == 1


def test_an_ambiguous_id_names_its_candidates(ctl: Ctl) -> None:
    export = ctl.json("export")
    ctl.ok("stop")
    twins = ["abcdabcd-0000-4000-8000-00000000000" + end for end in "12"]
    template = export["sessions"]["app"]["percepts"][0]
    percepts = [template | {"id": twin, "content": f"Twin {twin[-1]}"} for twin in twins]
    (ctl.home / "memory" / "twins.json").write_text(json.dumps({"percepts": percepts, "engrams": [], "edges": []}))
    done = ctl("--json", "show", "abcd")
    assert done.status == 6
    assert done.json["error"]["candidates"] == twins
    assert all(twin in done.err for twin in twins)
