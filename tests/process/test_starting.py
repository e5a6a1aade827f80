"""Starts: one daemon a home whatever races, crashes and paths there are; all private (interface: Home)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import Agent
from milk_client import NoDaemon, Timeout
from milk_client.paths import read_endpoint
from running import PATIENCE_S, Daemon, environment, is_dead, until

Agents = Callable[..., Agent]
FACT = "The queue is drained at night"
OTHER = "Crates are counted on Mondays"


def daemons_on(root: Path) -> list[int]:
    """The pids of all daemons on a home, from the table of processes."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or is_dead(int(entry.name)):
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"milkd" in words and os.fsencode(root) in words:
            found.append(int(entry.name))
    return found


@pytest.fixture
def end_daemons(daemon: Daemon) -> Iterator[None]:
    """Ends whatever the agents of the test started on its home."""
    yield
    for pid in daemons_on(daemon.root):
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: is_dead(pid))


@pytest.mark.usefixtures("end_daemons")
def test_eight_racing_starters_end_up_with_one_daemon(daemon: Daemon, agent: Agents) -> None:
    agents = [agent() for _ in range(8)]
    for one in agents:
        one.say("open", who="milk", kw={"session": "s"})
    runs = {one.answer() for one in agents}
    assert len(runs) == 8
    told = [one.record(FACT) for one in agents]
    assert [one["outcome"] for one in told] == ["new", *["reinforced"] * 7]
    assert len({one["id"] for one in told}) == 1, "all speak with the same one"
    pid = daemon.status().pid
    until(lambda: daemons_on(daemon.root) == [pid], what="one daemon is left")
    assert {line.run for line in daemon.status().runs} == runs


@pytest.mark.usefixtures("end_daemons")
def test_a_daemon_that_an_agent_started_outlives_it_and_is_nobodys_child(daemon: Daemon, agent: Agents) -> None:
    one = agent()
    one.open()
    pid = daemon.status().pid
    one.die()
    until(lambda: not daemon.status().runs)
    assert daemon.status().pid == pid
    text = Path(f"/proc/{pid}/stat").read_text()
    _, parent, group, session, *_ = text[text.rindex(")") + 2 :].split()
    assert int(parent) != one.pid and one.pid not in (int(group), int(session))
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")


def test_a_second_daemon_ends_with_status_3_and_names_the_first_ones_pid(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    status, told = daemon.run()
    assert status == 3
    assert str(daemon.pid) in told and "Traceback" not in told
    assert one.record(FACT)["outcome"] == "new", "the first one is not disturbed"


def test_a_daemon_whose_home_was_moved_ends_and_touches_nothing_of_the_new_one(daemon: Daemon, base: Path) -> None:
    daemon.start()
    with daemon.tool() as tool:
        tool.record(FACT)
    first, moved = daemon.process, base / "moved"
    assert first is not None
    daemon.root.rename(moved)
    daemon.start()  # at once, where the old home stood
    with daemon.tool() as tool:
        tool.record(OTHER)
        assert first.wait(PATIENCE_S) == 1
        assert "moved or removed" in daemon.told()
        tool.record("A third thing that is said when the first daemon is gone")
        tool.flush()
        assert {found.content for found in tool.list()} >= {OTHER} and not tool.status().health
    assert FACT not in daemon.contents("s") and daemon.run()[0] == 3
    there = Daemon(moved, base / "log")
    try:
        there.start()
        with there.tool() as tool:
            assert [found.content for found in tool.list()] == [FACT]
    finally:
        there.finish()


def test_a_daemon_whose_home_was_removed_ends(daemon: Daemon, base: Path) -> None:
    daemon.start()
    with daemon.tool() as tool:
        tool.record(FACT)
    assert daemon.process is not None
    shutil.rmtree(daemon.root.rename(base / "gone"))
    assert daemon.process.wait(PATIENCE_S) == 1
    assert not daemon.root.exists(), "nothing was made anew where the home was"


def test_a_removed_run_folder_is_made_anew_and_the_home_stays_locked(daemon: Daemon) -> None:
    daemon.start()
    shutil.rmtree(daemon.root / "run")
    assert daemon.run()[0] == 3, "the lock is not only a file"
    until((daemon.root / "run" / "endpoint").exists, what="it listens anew")
    assert (daemon.root / "run" / "lock").read_text().strip() == str(daemon.pid)
    status, told = daemon.run()
    assert status == 3 and str(daemon.pid) in told
    with daemon.tool() as tool:
        assert tool.record(FACT).outcome == "new"


def test_leftovers_of_a_crash_never_stop_a_start(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    one.record(FACT)
    daemon.kill()
    run = daemon.root / "run"
    assert (run / "milkd.sock").is_socket() and (run / "endpoint").exists(), "the crash left them"
    (run / "lock").write_text("1\n")  # a pid that is somebody else's
    (run / ".endpoint.tmp").write_bytes(b"{")
    (daemon.memory / "journal.new").write_bytes(b"MILKJRNL half of one")
    (daemon.memory / ".s.json.7.tmp").write_bytes(b"{")
    daemon.start()
    with daemon.tool() as tool:
        assert [percept.content for percept in tool.list()] == [FACT]
    assert not daemon.status().health
    told = read_endpoint(daemon.home)
    assert told is not None and told.pid == daemon.pid


def test_a_damaged_key_of_a_remembered_answer_stops_no_start_m3(daemon: Daemon, agent: Agents) -> None:
    daemon.start()
    one = agent()
    one.open()
    one.record(FACT)
    daemon.stop()
    state = daemon.memory / "state.json"
    text, changed = re.subn(r'("replies": \{\s*"[^" ]+ )\d+"', r'\1e5"', state.read_text())
    assert changed
    state.write_text(text)
    daemon.start()
    assert daemon.contents("s") == {FACT}


def test_a_file_in_the_way_of_the_socket_is_named_and_not_touched(daemon: Daemon) -> None:
    (daemon.root / "run").mkdir(parents=True, mode=0o700)
    in_the_way = daemon.root / "run" / "milkd.sock"
    in_the_way.write_text("mine")
    status, told = daemon.run()
    assert status == 2 and str(in_the_way) in told
    assert in_the_way.read_text() == "mine"


def test_a_home_whose_socket_path_is_too_long_is_reached_all_the_same(base: Path) -> None:
    root = base / ("long" * 20) / ("longer" * 20) / "home"
    root.parent.mkdir(parents=True)
    assert len(os.fsencode(root / "run" / "milkd.sock")) > 107
    daemon = Daemon(root, base / "log")
    one = Agent(environment(MILK_HOME=str(root)), base)
    sockets = daemon.home.sockets
    try:
        daemon.start()
        assert sockets != root / "run" and stat.S_IMODE(sockets.stat().st_mode) == 0o700
        one.open(autostart=False)
        assert one.record(FACT)["outcome"] == "new"
        daemon.restart()
        assert one.record(FACT)["outcome"] == "reinforced"
        assert daemon.run()[0] == 3
    finally:
        one.finish()
        daemon.finish()
        shutil.rmtree(sockets)


def test_who_may_not_start_one_is_told_so_and_starts_none(daemon: Daemon) -> None:
    with pytest.raises(NoDaemon, match="milkd"):
        daemon.status()
    assert not daemon.root.exists()
    assert daemons_on(daemon.root) == []


def test_a_socket_that_accepts_and_says_nothing_is_waited_for_and_never_spawned_over(daemon: Daemon) -> None:
    (daemon.root / "run").mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(daemon.home.socket))
        listener.listen(16)
        with pytest.raises(Timeout), daemon.tool(timeout=1.0) as tool:
            tool.status()
        assert daemons_on(daemon.root) == []


@pytest.mark.parametrize("umask", [0o000, 0o777], ids=["000", "777"])
def test_directories_are_0700_and_files_0600_whatever_the_umask_m3(daemon: Daemon, agent: Agents, umask: int) -> None:
    daemon.start(preexec_fn=lambda: os.umask(umask))
    one = agent()
    one.open()
    one.record(FACT)
    one.record("The user likes rye bread", producer="user")
    with daemon.tool() as tool:
        tool.forget(tool.list(pattern="rye")[0])
        # Another program's edit that cannot be read is set aside: a file in a folder of its own.
    (daemon.memory / "global.json").write_text("{ not json")
    until(lambda: (daemon.memory / "aside").exists() and list((daemon.memory / "aside").glob("*global.json")))
    assert one.turn()["session"] == "s"
    found = [daemon.root, *daemon.root.rglob("*")]
    assert len(found) >= 10
    for path in found:
        mode = path.lstat().st_mode
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if path.name in ("milkd.sock", "events.sock"):
            assert not stat.S_IMODE(mode) & 0o077, path
        else:
            assert stat.S_IMODE(mode) == wanted, path


def test_a_home_that_others_could_read_is_closed_to_them(daemon: Daemon) -> None:
    daemon.memory.mkdir(parents=True)
    daemon.memory.chmod(0o755)
    (daemon.memory / "global.json").write_text('{"percepts": [], "engrams": [], "edges": []}')
    (daemon.memory / "global.json").chmod(0o644)
    daemon.start()
    with daemon.tool() as tool:
        tool.learn(FACT)
        tool.flush()
    assert stat.S_IMODE(daemon.memory.stat().st_mode) == 0o700
    assert stat.S_IMODE((daemon.memory / "global.json").stat().st_mode) == 0o600
    copies = [path for path in daemon.memory.rglob("before-milkd-*/*") if path.is_file()]
    assert copies and all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in copies)


@pytest.mark.usefixtures("end_daemons")
def test_a_log_of_a_daemon_started_by_an_agent_says_nothing_of_what_is_remembered(
    daemon: Daemon, agent: Agents
) -> None:
    one = agent()
    one.open()
    one.record("The vault code is marzipan")
    assert b"marzipan" not in (daemon.root / "run" / "milkd.log").read_bytes()


def test_without_a_home_a_sentence_says_what_to_do(base: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "milkd"],
        env={**environment(), "HOME": ""},
        cwd=base,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "HOME is empty" in done.stderr and "MILK_HOME" in done.stderr and "Traceback" not in done.stderr
