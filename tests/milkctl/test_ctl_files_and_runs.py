"""What only a home made beforehand and several runs show: fields of other programs, and whose pass it is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ctl import Ctl

LIVING = "1f3a9c21-0000-4000-8000-000000000001"
GONE = "1f3a9c21-0000-4000-8000-000000000002"


def _percept(percept_id: str, content: str) -> dict[str, Any]:
    return {
        "id": percept_id,
        "content": content,
        "producer": "user",
        "w": 0.9,
        "roles": {},
        "created_at": "2026-01-05T10:00:00Z",
        "updated_at": "2026-01-05T10:00:00Z",
        "theirs": {"deep": [1.5, None]},
    }


def test_fields_of_another_program_are_in_every_document(idle: Ctl) -> None:
    memory = idle.home / "memory"
    memory.mkdir(parents=True)
    living, gone = _percept(LIVING, "Otters live in the river"), _percept(GONE, "Otters live in the sea")
    (memory / "global.json").write_text(json.dumps({"percepts": [living], "engrams": [], "edges": []}, indent=2))
    entry = {"percept": gone, "edges": [], "reason": "stale", "at": "2026-02-05T10:00:00Z", "scope": "global"}
    (memory / "archive.json").write_text(json.dumps({"archive": [entry]}, indent=2))

    listed, recalled = idle.json("list")[0], idle.json("recall", "otters")[0]
    assert listed["theirs"] == recalled["theirs"] == living["theirs"]
    assert {"scope", "rank_score"} <= listed.keys()
    assert "extra" not in listed
    assert idle.json("show", LIVING)["percept"]["theirs"] == living["theirs"]
    assert idle.json("archive", "list")[0]["percept"]["theirs"] == gone["theirs"]
    assert idle.json("export")["global"]["percepts"][0]["theirs"] == living["theirs"]
    assert 'theirs     {"deep":[1.5,null]}' in idle.ok("show", LIVING)


@contextmanager
def _agent() -> Iterator[int]:
    """A process that does nothing; its pid."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process.pid


def test_a_pass_is_of_the_sitting_of_the_run_that_asked(idle: Ctl) -> None:
    with ExitStack() as stack:
        older, newer = (idle.json("run", "begin", "--pid", str(stack.enter_context(_agent())))["run"] for _ in range(2))
        texts = ("Cranes nest here", "Storks sleep there")
        one, two = (idle.json("record", text, "--run", older)["id"] for text in texts)
        idle.ok("link", one, two, "extends")

        def acted() -> int:
            return int(idle.json("show", one)["edges"][0].get("propagated", 0))

        # Nobody's pass is of the newest run's sitting, which has not said a word: no edge moves (M13).
        idle.ok("consolidate")
        assert acted() == 0
        idle.ok("consolidate", "--run", older)
        assert acted() == 1
        assert idle("consolidate", "--run", "nobody's").status == 5
        assert {line["run"] for line in idle.json("status")["runs"]} == {older, newer}
