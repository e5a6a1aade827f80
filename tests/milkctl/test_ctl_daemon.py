"""The daemon, runs, the store as a whole, and the command line itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ctl import Ctl, until
from milkctl.processes import Departure

RUN_ID_DIGITS = 32


# ---------------------------------------------------------------- no daemon


def test_without_a_daemon(idle: Ctl) -> None:
    done = idle("status", "--no-start")
    assert (done.status, done.out) == (4, "")
    assert "No milkd answers on" in done.err
    told = idle("--no-start", "--json", "list")
    assert (told.status, told.json["error"]["code"]) == (4, "no_daemon")
    assert "No milkd answers on" in told.err
    stop = idle("stop")
    assert (stop.status, stop.out) == (0, f"No milkd runs on {idle.home}: nothing to stop.\n")
    assert idle.json("stop")["stopped"] is False
    assert idle("start", "--no-start").status == 4
    assert not (idle.home / "run" / "endpoint").exists()


def test_life(idle: Ctl) -> None:
    assert "Health: good" in idle.ok("status")  # started by being asked
    pid = idle.json("status")["pid"]
    assert f"runs already on {idle.home} (pid {pid})." in idle.ok("start")
    assert idle.json("start") == {
        "running": True,
        "pid": pid,
        "version": idle.json("status")["version"],
        "home": str(idle.home),
        "started": False,
    }
    restarted = idle.json("restart")
    assert (restarted["was"], restarted["running"]) == (pid, True)
    assert idle.json("stop")["pid"] == restarted["pid"]
    assert Departure(restarted["pid"]).wait(0.0)
    assert "none ran before" in idle.ok("restart")
    assert "has stopped" in idle.ok("stop")


def test_a_home_that_cannot_be_written(idle: Ctl) -> None:
    (idle.home.parent / "file").write_text("")
    done = idle("status", "--home", str(idle.home.parent / "file"))
    assert done.status == 4
    assert "cannot be written" in done.err


# ---------------------------------------------------------------- status, runs


def test_status_has_what_is_pinned(ctl: Ctl) -> None:
    found = ctl.json("status")
    assert {"pid", "version", "home", "clocks", "runs", "counts", "last_pass", "health"} <= found.keys()
    assert {"global_s", "sessions"} <= found["clocks"].keys()
    assert found["health"] == []
    assert "re" not in found


def test_a_run_is_begun_for_the_agent_above(ctl: Ctl) -> None:
    run = ctl.ok("run", "begin").strip()
    assert len(run) == RUN_ID_DIGITS
    live = {line.run: line for line in ctl.status().runs}
    assert (live[run].pid, live[run].session, live[run].role) == (os.getpid(), "app", "primary")
    assert run[:8] in ctl.ok("status")
    done = ctl.json("record", "Said in the run above")
    assert done["percept"]["producer"] == "primary"  # found among the ancestors
    assert ctl.json("turn")["session"] == "app"
    assert "Pass over session app" in ctl.ok("turn", "--run", run)
    ended = ctl.json("run", "end", run[:8])
    assert (ended["run"], ended["report"]["session"]) == (run, "app")
    assert ctl("run", "end", run).status == 5
    assert ctl("turn").status == 2


def test_a_run_of_another_process(ctl: Ctl) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as agent:
        begun = ctl.json("run", "begin", "--pid", str(agent.pid), "--session", "hooks", "--role", "escalation")
        run = begun.pop("run")
        assert begun == {"session": "hooks", "role": "escalation", "pid": agent.pid}
        said = ctl.json("record", "Hooked in by its id", MILK_RUN_ID=run)
        assert (said["percept"]["session"], said["percept"]["producer"]) == ("hooks", "escalation")
        assert ctl.json("recall", "hooked", "--run", run)[0]["id"] == said["id"]
        assert "Hooked in" in ctl.ok("inject", "hooked", "--run", run)
        agent.communicate(b"\n")
    until(lambda: not ctl.status().runs)
    assert ctl("run", "begin", "--pid", "4194399").status == 2


def test_a_hook_in_a_shell(ctl: Ctl) -> None:
    """The shell that ran the hook is passed over, the agent above it has the run."""
    hook = " ".join([*ctl.command("run", "begin"), "; true"])
    agent = f"import subprocess; subprocess.run(['sh', '-c', {hook!r}], check=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", agent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ctl.project,
        env=ctl.environment,
    ) as process:
        assert process.stdout is not None
        run = process.stdout.readline().decode().strip()
        assert {line.run: line.pid for line in ctl.status().runs}[run] == process.pid
        process.communicate(b"\n")
    until(lambda: not ctl.status().runs)


def test_looking_starts_no_run_and_moves_no_clock(ctl: Ctl) -> None:
    before = ctl.status()
    for words in (["list"], ["archive", "list"], ["sessions"], ["export"]):
        ctl.ok(*words)
    after = ctl.status()
    assert (before.runs, before.clocks, before.event) == ([], after.clocks, after.event)
    assert ctl("status", MILK_RUN_ID="long-gone").status == 0
    for looking in (["list"], ["conflicts"], ["archive", "list"]):
        done = ctl(*looking, MILK_RUN_ID="long-gone")
        assert done.status == 0 and "looking without it" in done.err
    for doing in (["record", "Said in a run of long ago"], ["recall", "uv"]):
        done = ctl(*doing, MILK_RUN_ID="long-gone")
        assert done.status == 5 and "Unset MILK_RUN_ID" in done.err


def test_consolidate_reports(ctl: Ctl) -> None:
    ctl.record("The user wants this everywhere")
    report = ctl.json("consolidate")
    assert (report["session"], report["promoted"]) == ("app", 1)
    assert {"decayed", "pruned", "archived", "evicted", "global_dt_s", "duration_ms"} <= report.keys()
    assert "Pass over session other" in ctl.ok("consolidate", "--session", "other")
    assert "Last pass\n  Session other, just now: nothing to do." in ctl.ok("status")


# ---------------------------------------------------------------- the store as a whole


def test_sessions(ctl: Ctl) -> None:
    ctl.record("Of the old one", session="old")
    ctl.record("Of the new one", session="new")
    assert {"old", "new"} <= {line["session"] for line in ctl.json("sessions")}
    assert ctl.ok("sessions", "rename", "old", "older") == "Session old is now older.\n"
    assert ctl.json("sessions", "merge", "older", "new") == {"source": "older", "into": "new"}
    assert len(ctl.json("list", "--session", "new", "--scope", "session")) == 2
    assert ctl("sessions", "rename", "old", "x").status == 5
    assert "session" in ctl.ok("sessions")


def test_export(ctl: Ctl) -> None:
    content = "Exported *starred* fact"
    ctl.record(content)
    store = ctl.json("export")
    assert store == json.loads(ctl.ok("export"))
    assert {"global", "sessions", "archive"} == store.keys()
    assert content in [p["content"] for p in store["sessions"]["app"]["percepts"]]
    assert "## Session app" in (text := ctl.ok("export", "--format", "markdown"))
    assert "- Exported \\*starred\\* fact (0.90, user, #" in text


def test_config(ctl: Ctl, tmp_path: Path) -> None:
    assert "# In force: the defaults\n\n[memory]\n" in ctl.ok("config", "show")
    assert ctl.json("config", "show")["values"]["memory"]["max_results"] == 5
    assert "good" in ctl.ok("config", "check")
    bad = tmp_path / "bad.toml"
    bad.write_text("[memory]\nprune_threshold = 7\n")
    done = ctl("config", "check", str(bad))
    assert done.status == 1
    assert "memory.prune_threshold = 7" in done.out
    told = ctl("--json", "config", "check", str(bad))
    assert (told.status, told.json["good"], len(told.json["problems"])) == (1, False, 1)
    odd = tmp_path / "odd.toml"
    odd.write_text("[memory]\nmax_result = 7\n")
    assert "did you mean max_results" in ctl.json("config", "check", str(odd))["warnings"][0]
    assert ctl("config", "check", str(tmp_path / "none.toml")).status == 2


@pytest.mark.parametrize("as_json", [True, False])
def test_watch(ctl: Ctl, as_json: bool) -> None:
    with ctl.popen("watch", "--kind", "recorded", *(["--json"] if as_json else [])) as watch:
        assert watch.stderr is not None
        assert watch.stdout is not None
        assert b"Watching" in watch.stderr.readline()
        os.set_blocking(watch.stdout.fileno(), False)
        stated = iter(range(1000))

        def seen() -> bytes | None:
            ctl.record(f"Watched number {next(stated)} {os.urandom(8).hex()}")
            return watch.stdout.readline() if watch.stdout else None

        line = until(seen).decode()
        watch.send_signal(signal.SIGINT)
        assert watch.wait(10) == 0
    if as_json:
        event = json.loads(line)
        assert (event["kind"], event["session"]) == ("recorded", "app")
        assert event["content"].startswith("Watched number")
    else:
        assert line.split()[1:3] == ["recorded", "app"]
        assert "Watched number" in line


# ---------------------------------------------------------------- the command line itself


@pytest.mark.parametrize("words", [["--json", "sessions"], ["sessions", "--json"]])
def test_global_options_stand_anywhere(ctl: Ctl, words: list[str]) -> None:
    assert isinstance(json.loads(ctl.ok(*words)), list)
    away = ctl("--no-start", *words, "--home", str(ctl.home.parent / "nowhere"))
    assert (away.status, away.json["error"]["code"]) == (4, "no_daemon")


def test_the_shell_is_told_what_fits(ctl: Ctl) -> None:
    asked = {"_MILKCTL_COMPLETE": "bash_complete", "COMP_WORDS": "milkctl con", "COMP_CWORD": "1"}
    assert {line.split(",")[1] for line in ctl.ok(**asked).split()} == {"conflicts", "consolidate", "config"}


def test_a_reader_that_leaves_and_a_full_disk(ctl: Ctl) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            ctl.command("list"), stdout=pipe, stderr=subprocess.PIPE, env=ctl.environment, check=False, timeout=20
        )
    assert (done.returncode, done.stderr) == (1, b"")
    if Path("/dev/full").exists():
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                ctl.command("--json", "list"),
                stdout=full,
                stderr=subprocess.PIPE,
                env=ctl.environment,
                check=False,
                timeout=20,
            )
        assert (done.returncode, done.stderr) == (1, b"milkctl: No space left on device\n")


def test_ctrl_c_while_it_waits(ctl: Ctl) -> None:
    pid = ctl.status().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with ctl.popen("status", "--timeout", "15") as waiting:
            until(lambda: b"milkctl" in Path(f"/proc/{waiting.pid}/cmdline").read_bytes())
            until(lambda: len(list(Path(f"/proc/{waiting.pid}/task").iterdir())) > 2)  # its connection is being made
            waiting.send_signal(signal.SIGINT)
            _, told = waiting.communicate(timeout=10)
            assert waiting.returncode == 130
            assert b"Traceback" not in told
        slow = ctl("status", "--timeout", "0.3", "--json")
        assert (slow.status, slow.json["error"]["code"]) == (1, "timeout")
    finally:
        os.kill(pid, signal.SIGCONT)
