"""What only a home made beforehand and several runs show: fields of other programs, and whose pass it is."""

from __future__ import annotations

import itertools
import json
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ctl import WAIT_S, Ctl, until
from milk_client import Tool

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
    idle.ok("start")
    with ExitStack() as stack:
        tool = stack.enter_context(idle.tool())
        for run in ("older", "newer"):
            tool.begin_run(run, session="app", role="primary", pid=stack.enter_context(_agent()))
        with Tool("app", run="older", home=idle.home, autostart=False) as older:
            one, two = older.record("Cranes nest here").id, older.record("Storks sleep there").id
        tool.link(one, two, "extends")

        # Nobody's pass is of the newest run's sitting, which has not said a word: no edge moves (M13).
        idle.ok("consolidate")
        assert tool.show(one).edges[0].propagated == 0
        idle.ok("consolidate", "--run", "older")
        assert tool.show(one).edges[0].propagated == 1
        assert idle("consolidate", "--run", "nobody's").status == 5


def test_several_that_start_it_at_once_share_one_daemon(idle: Ctl) -> None:
    starters = [idle.popen("--json", "learn", f"Said by starter {number} of the {number}s") for number in range(6)]
    told = [process.communicate(timeout=WAIT_S) for process in starters]
    assert [process.returncode for process in starters] == [0] * 6, told
    assert len({json.loads(out)["id"] for out, _ in told}) == 6
    with idle.tool() as tool:
        assert len(tool.list()) == 6


def test_watch_goes_on_when_the_daemon_is_restarted(idle: Ctl) -> None:
    idle.ok("start")
    with idle.popen("watch", "--json", "--kind", "recorded") as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        watch.stderr.readline()  # it says that it watches
        idle.ok("restart")
        numbers = itertools.count()
        # A subscription takes a moment to stand again, and what happened before is not told.
        until(lambda: idle.record(f"Fact {next(numbers)}") and select.select([watch.stdout], [], [], 0.1)[0])
        assert json.loads(watch.stdout.readline())["kind"] == "recorded"
        watch.send_signal(signal.SIGINT)
        assert watch.wait(WAIT_S) == 0
