"""The JSON files as people and other programs use them: edited while milkd runs, and as they stood before it (M3)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent
from running import Daemon, until

Agents = Callable[..., Agent]
WHEN = "2026-01-05T09:00:00Z"


def percept(number: int, content: str, **more: Any) -> dict[str, Any]:
    """A percept as milk users have it on disk: none of the newer fields."""
    return {
        "id": f"{number:08x}-0000-4000-8000-000000000000",
        "content": content,
        "producer": "primary",
        "w": 0.7,
        "roles": {},
        "created_at": WHEN,
        "updated_at": WHEN,
        **more,
    }


def write(path: Path, document: Any) -> None:
    """As an editor saves: a new file in the place of the old one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name("editor~")
    fresh.write_text(document if isinstance(document, str) else json.dumps(document, indent=2))
    fresh.rename(path)


def contents(daemon: Daemon) -> set[str]:
    with daemon.tool() as tool:
        return {found.content for found in tool.list()}


def flush(daemon: Daemon) -> None:
    with daemon.tool() as tool:
        tool.flush()


@pytest.mark.parametrize("watch", ["auto", "poll"])
def test_changed_new_and_deleted_percepts_of_an_edit_by_hand_are_merged(
    daemon: Daemon, agent: Agents, watch: str
) -> None:
    daemon.write_config(f'[daemon]\nwatch = "{watch}"\n')
    daemon.start()
    one = agent()
    one.open()
    for content in ("The gate is blue", "Keys hang by the door", "Milk comes on Mondays"):
        one.record(content)
    one.ask("flush")
    path = daemon.memory / "s.json"
    document = daemon.file("s.json")
    by_content = {found["content"]: found for found in document["percepts"]}
    by_content["The gate is blue"]["content"] = "The gate is green"
    document["percepts"].remove(by_content["Milk comes on Mondays"])
    document["percepts"].append(percept(1, "The cellar floods in spring", colour="red"))
    one.record("Bread comes on Tuesdays")  # after the person opened the file
    write(path, document)
    os.utime(path, (path.stat().st_mtime + 5,) * 2)  # polling sees whole seconds only
    wanted = {"The gate is green", "Keys hang by the door", "The cellar floods in spring", "Bread comes on Tuesdays"}
    until(lambda: contents(daemon) == wanted, what="the edit is merged")
    with daemon.tool() as tool:
        (gone,) = tool.archive()
        assert gone.percept.content == "Milk comes on Mondays", "taken out of the file is archived, not forgotten"
        shown = tool.show(by_content["The gate is blue"]["id"])
        assert shown.percept.content == "The gate is green"
        assert tool.show("00000001").percept.extra == {"colour": '"red"'}
    flush(daemon)
    assert daemon.contents("s") == wanted, "the file says what is remembered, the edit included"
    assert not daemon.status().health
    daemon.restart()
    assert contents(daemon) == wanted


def test_edits_in_place_and_again_and_again_are_merged_while_agents_write(
    daemon: Daemon, agent: Agents, base: Path
) -> None:
    daemon.write_config("[memory]\nsnapshot_interval_s = 0.1\n")
    daemon.start()
    one = agent()
    one.open()
    one.record("Revision number 0 of the plan")
    one.ask("flush")
    path = daemon.memory / "s.json"
    one.say("stream", who="milk", ledger=str(base / "ledger"), count=400, tag=3)
    for n in range(1, 6):
        text = path.read_text()
        assert f"Revision number {n - 1} of the plan" in text
        path.write_text(text.replace(f"Revision number {n - 1}", f"Revision number {n}"))  # in place, not renamed

        def shows(n: int = n) -> bool:
            flush(daemon)
            return f"Revision number {n} of the plan" in path.read_text()

        until(shows, what=f"edit {n} is taken in and written back")
    assert one.answer() == 400
    found = contents(daemon)
    assert len(found) == 401 and "Revision number 5 of the plan" in found
    assert not daemon.status().health


def test_invalid_json_is_set_aside_with_the_reason_and_memory_is_written_anew(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    one.record("The gate is blue")
    one.ask("flush")
    broken = (daemon.memory / "s.json").read_text().replace('"content"', '"content', 1)
    write(daemon.memory / "s.json", broken)
    (line,) = until(lambda: daemon.status().health, what="status says so")
    assert "s.json" in line and "not valid" in line
    (aside,) = (daemon.memory / "aside").iterdir()
    assert aside.read_text() == broken and aside.name in line, "kept as it was, and status says where"
    flush(daemon)
    assert daemon.contents("s") == {"The gate is blue"}
    one.record("Keys hang by the door")
    assert contents(daemon) == {"The gate is blue", "Keys hang by the door"}


@pytest.mark.parametrize(
    "broken",
    [
        {"percepts": [percept(1, "x", w=7)]},
        {"percepts": [{"id": "1"}]},
        {"percepts": {"a": 1}},
        {"percepts": [percept(1, " ")]},
        "[]",
        '{"percepts": [], "percepts": []}',
    ],
    ids=["w-of-7", "half-a-percept", "no-list", "no-content", "no-object", "a-key-twice"],
)
def test_an_edit_with_something_wrong_in_it_changes_nothing_and_is_kept(
    daemon: Daemon, broken: dict[str, Any] | str
) -> None:
    daemon.start()
    with daemon.tool() as tool:
        tool.record("The gate is blue")
        tool.flush()
    if isinstance(broken, dict):
        broken = {**daemon.file("s.json"), **broken}
    write(daemon.memory / "s.json", broken)
    until(lambda: any("s.json" in line and "aside" in line for line in daemon.status().health))
    flush(daemon)
    assert contents(daemon) == daemon.contents("s") == {"The gate is blue"}
    assert len(list((daemon.memory / "aside").iterdir())) == 1


def test_a_file_removed_while_milkd_runs_is_written_anew(daemon: Daemon) -> None:
    daemon.start()
    with daemon.tool() as tool:
        tool.record("The gate is blue")
        tool.flush()
        (daemon.memory / "s.json").unlink()
        until(lambda: daemon.contents("s") == {"The gate is blue"})
        assert any("s.json" in note for note in tool.status().notes)


def test_an_edit_while_milkd_is_down_is_what_holds_at_the_next_start(daemon: Daemon) -> None:
    daemon.start()
    with daemon.tool() as tool:
        tool.record("The gate is blue")
        tool.record("Keys hang by the door")
    assert daemon.stop() == 0
    document = daemon.file("s.json")
    document["percepts"] = [p for p in document["percepts"] if "Keys" not in p["content"]]
    document["percepts"][0]["content"] = "The gate is green"
    write(daemon.memory / "s.json", document)
    daemon.start()
    assert contents(daemon) == {"The gate is green"}
    assert any("s.json" in note for note in daemon.status().notes)


def test_what_was_forgotten_does_not_come_back_by_an_old_editor(daemon: Daemon) -> None:
    daemon.start()
    with daemon.tool() as tool:
        gone = tool.record("The vault code is marzipan")
        tool.record("The gate is blue")
        tool.flush()
        old = (daemon.memory / "s.json").read_text()
        tool.forget(gone)
        write(daemon.memory / "s.json", old)
        until(lambda: "marzipan" not in (daemon.memory / "s.json").read_text(), what="the file is written anew")
        assert contents(daemon) == {"The gate is blue"}
    until(lambda: daemon.stop() == 0)
    assert not [p for p in daemon.root.rglob("*") if p.is_file() and b"marzipan" in p.read_bytes()]


# ---------------------------------------------------------------- fields of others

ODD = '{"b":1.50,  "a" : [1,2 ,3e400,\t12345678901234567890123], "u":"\\u00e9\\/", "n":null}'
"""A value in a spelling that no encoder of ours would choose, with numbers that no float holds."""


def odd_home(memory: Path) -> None:
    """Files with fields of others at every level."""
    memory.mkdir(parents=True, mode=0o700)
    one = json.dumps(percept(1, "Payments go through the gateway", producer="user", w=0.9))[:-1]
    two = json.dumps(percept(2, "Refunds take two days", engram_id="e1"))[:-1]
    edge = json.dumps(
        {"from": percept(1, "")["id"], "to": percept(2, "")["id"], "relation": "extends"},
    )[:-1]
    engram = json.dumps(
        {
            "id": "e1",
            "subject_label": "refunds",
            "composite_w": 0.7,
            "percept_ids": [percept(2, "")["id"]],
            "created_at": WHEN,
            "updated_at": WHEN,
        }
    )[:-1]
    (memory / "s.json").write_text(
        f'{{"x_top": {ODD}, "percepts": [{one}, "x_one": {ODD}}}, {two}, "x_two": {ODD}}}], '
        f'"engrams": [{engram}, "x_engram": {ODD}}}], "edges": [{edge}, "x_edge": {ODD}}}]}}'
    )
    (memory / "global.json").write_text(f'{{"percepts": [], "engrams": [], "edges": [], "x_global": {ODD}}}')


def odd_fields(memory: Path) -> dict[str, int]:
    """How often each of them stands in the files, its value byte for byte as it was."""
    text = (memory / "s.json").read_text() + (memory / "global.json").read_text()
    names = ("x_top", "x_one", "x_two", "x_engram", "x_edge", "x_global")
    return {name: text.count(f'"{name}": {ODD}') for name in names}


def test_fields_that_milkd_does_not_know_survive_byte_for_byte(daemon: Daemon, agent: Agents) -> None:
    odd_home(daemon.memory)
    daemon.start()
    one = agent()
    one.open()
    each_once = dict.fromkeys(odd_fields(daemon.memory), 1)
    assert odd_fields(daemon.memory) == each_once
    one.record("Refunds take two days")
    one.ask("flush")
    assert daemon.file("s.json")["milkd"]["generation"] > 0, "written by milkd"
    assert odd_fields(daemon.memory) == each_once, "over a change"
    assert one.turn()["promoted"] == 1
    assert "Payments go through the gateway" in daemon.contents("global")
    assert odd_fields(daemon.memory) == each_once, "over a promotion"
    with daemon.tool() as tool:
        tool.edit("00000001", "Payments go through the new gateway")
        tool.flush()
    assert odd_fields(daemon.memory) == each_once, "over an edit"
    daemon.restart()
    one.record("Refunds are made by hand")
    one.ask("flush")
    assert odd_fields(daemon.memory) == each_once, "over a crash and a start"
    assert daemon.stop() == 0
    (daemon.memory / "state.json").unlink()
    daemon.start()
    with daemon.tool() as tool:
        tool.record("Refunds are counted on Fridays")
    assert daemon.stop() == 0
    assert odd_fields(daemon.memory) == each_once, "over a lost state"


def test_fields_of_others_go_to_the_archive_and_back(daemon: Daemon) -> None:
    odd_home(daemon.memory)
    daemon.start()
    with daemon.tool() as tool:
        successor = tool.record("Refunds take three days", replaces="00000002")
        tool.flush()
        archive = (daemon.memory / "archive.json").read_text()
        assert archive.count(f'"x_two": {ODD}') == 1 and odd_fields(daemon.memory)["x_two"] == 0
        tool.forget(successor)
        tool.restore("00000002")
        tool.flush()
    assert odd_fields(daemon.memory)["x_two"] == 1


# ---------------------------------------------------------------- homes of others


def test_a_home_as_it_was_before_milkd_loads_as_it_is_and_is_first_copied_aside(daemon: Daemon, agent: Agents) -> None:
    session = {"percepts": [percept(n, f"Shelf {n} holds crate c{n}") for n in range(1, 6)], "engrams": [], "edges": []}
    core = [percept(77, "Never commit secrets", core=True, w=1.0, producer="user")]
    globals_ = {"percepts": [*core, percept(78, "Deploys happen on Thursdays", w=0.8, evidence=2)]}
    write(daemon.memory / "s.json", session)
    write(daemon.memory / "global.json", globals_)
    before = {name: (daemon.memory / name).read_bytes() for name in ("s.json", "global.json")}
    daemon.start()
    one = agent()
    one.open()
    with daemon.tool() as tool:
        found = {p.content: p for p in tool.list()}
    assert len(found) == 7
    assert found["Never commit secrets"].core and found["Never commit secrets"].w == 1.0
    deploys = found["Deploys happen on Thursdays"]
    assert deploys.w == deploys.w_confirmed == pytest.approx(0.8, abs=1e-6) and deploys.evidence == 2
    assert found["Shelf 1 holds crate c1"].w == pytest.approx(0.7, abs=1e-6), "years on disk are not running time"
    assert one.record("Shelf 1 holds crate c1")["percept"]["evidence"] == 1, "any sitting may add (M12)"
    one.ask("flush")
    (copies,) = daemon.memory.glob("before-milkd-*")
    assert {path.name: path.read_bytes() for path in copies.iterdir()} == before
    daemon.restart()
    assert len(list(daemon.memory.glob("before-milkd-*"))) == 1, "once"


def test_one_percept_that_cannot_be_used_keeps_none_of_the_others_out(daemon: Daemon) -> None:
    write(
        daemon.memory / "s.json",
        {"percepts": [percept(1, "The gate is blue"), percept(2, "bad", w="high"), percept(3, "Keys hang low")]},
    )
    daemon.start()
    assert contents(daemon) == {"The gate is blue", "Keys hang low"}
    assert any("percepts[1]" in line for line in daemon.status().health)
    assert [json.loads(path.read_bytes())["w"] for path in (daemon.memory / "aside").iterdir()] == ["high"]


def test_a_file_that_is_no_json_at_the_start_is_set_aside_and_the_rest_is_used(daemon: Daemon) -> None:
    write(daemon.memory / "global.json", "{ half of a fi")
    write(daemon.memory / "s.json", {"percepts": [percept(1, "The gate is blue")]})
    daemon.start()
    assert contents(daemon) == {"The gate is blue"}
    assert any("global.json" in line and "aside" in line for line in daemon.status().health)
    kept = [path.read_text() for path in (daemon.memory / "aside").iterdir()]
    assert kept == ["{ half of a fi"]


def test_a_file_of_a_newer_format_refuses_the_start_and_is_left_alone(daemon: Daemon) -> None:
    write(daemon.memory / "s.json", {"percepts": [], "milkd": {"format": 99}, "from_tomorrow": 1})
    before = (daemon.memory / "s.json").read_bytes()
    status, told = daemon.run()
    assert status == 2 and "format 99" in told and "Traceback" not in told
    assert (daemon.memory / "s.json").read_bytes() == before


def test_a_linked_file_stays_a_link_and_is_written_where_it_lies(daemon: Daemon, base: Path) -> None:
    kept = base / "dotfiles"
    write(kept / "shared.json", {"percepts": [percept(1, "The gate is blue")]})
    daemon.memory.mkdir(parents=True, mode=0o700)
    (daemon.memory / "global.json").symlink_to(kept / "shared.json")
    daemon.start()
    with daemon.tool() as tool:
        tool.learn("Never commit secrets")
        tool.flush()
    assert (daemon.memory / "global.json").is_symlink()
    document = json.loads((kept / "shared.json").read_bytes())
    assert {p["content"] for p in document["percepts"]} == {"The gate is blue", "Never commit secrets"}
