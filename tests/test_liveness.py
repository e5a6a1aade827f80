"""Whether a process is still that process, and running, asked of real ones (M5, M6)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from milkd import liveness
from milkd.clocks import Process

PATIENCE_S = 20.0
_never = threading.Event()
WAITS = "import sys; print('here', flush=True); sys.stdin.read()"
NESTED = """
import os, subprocess, sys
print(os.getpid(), flush=True)
depth = int(sys.argv[1])
if depth:
    below = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]], stdin=sys.stdin)
    if len(sys.argv) == 3:
        below.wait()
else:
    sys.stdin.read()
"""
"""Prints its pid and starts another below it, down to depth 0; each waits for the one below."""
ORPHAN = """
import os, sys
alone, parent = os.pipe()
if os.fork():
    os.read(0, 3)
else:
    os.close(parent)
    print(os.getpid(), flush=True)
    os.read(alone, 1)
    print("alone", flush=True)
    sys.stdin.read()
"""
"""Starts a child, and leaves it behind when it is told to go."""
CONNECTS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect("peer")
    sys.stdin.read()
"""
Start = Callable[..., "subprocess.Popen[str]"]
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def until(look: Callable[[], bool], what: str) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        _never.wait(0.005)


@pytest.fixture(params=[pytest.param("proc", marks=linux_only), "psutil"], autouse=True)
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways of asking: what Linux tells of a process, and what psutil tells everywhere else."""
    monkeypatch.setattr(liveness, "_LINUX", request.param == "proc")
    liveness.boot_id.cache_clear()
    yield request.param
    monkeypatch.undo()
    liveness.boot_id.cache_clear()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a child, which lives until its stdin ends; all are ended, stopped ones too."""
    made: list[subprocess.Popen[str]] = []

    def begin(program: str = WAITS, *arguments: str) -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return made[-1]

    yield begin
    for child in made:
        assert child.stdin and child.stdout
        child.stdin.close()  # whoever reads it below ends, too
        if child.returncode is None:
            child.kill()
            child.wait()
        child.stdout.close()


def line(child: subprocess.Popen[str]) -> str:
    """The next line that it says: from then on it does what its program says."""
    assert child.stdout
    said = child.stdout.readline()
    assert said, "it ended without a word"
    return said.strip()


def waiting(start: Start) -> tuple[subprocess.Popen[str], Process]:
    """A child that waits, and who it is."""
    child = start()
    assert line(child) == "here"
    return child, liveness.chain(child.pid)[0]


def became(child: subprocess.Popen[str], what: int) -> None:
    """Wait until the kernel says that a child stopped, goes on or is a zombie; it is not reaped."""

    def told() -> bool:
        return os.waitid(os.P_PID, child.pid, what | os.WNOHANG | os.WNOWAIT) is not None

    until(told, f"state {what}")


def state(process: Process) -> str:
    """In which of the three sets it is; it must be in exactly one."""
    found = liveness.look([process])
    sets = {"alive": found.alive, "stopped": found.stopped, "dead": found.dead}
    (name,) = (name for name, members in sets.items() if members == {process})
    assert sum(len(members) for members in sets.values()) == 1
    return name


# ---------------------------------------------------------------- one process


def test_a_process_lives_until_it_has_ended_and_is_dead_before_anybody_reaps_it_m6(start: Start) -> None:
    child, process = waiting(start)
    assert process.pid == child.pid and process.boot == liveness.boot_id()
    assert state(process) == "alive"
    child.kill()
    became(child, os.WEXITED)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert state(process) == "dead", "a zombie"
    child.wait()
    assert state(process) == "dead", "gone"
    assert liveness.chain(child.pid) == () and liveness.command(child.pid) == ""


def test_a_stopped_process_is_neither_live_nor_dead_and_lives_again_when_it_goes_on_m6(start: Start) -> None:
    child, process = waiting(start)
    child.send_signal(signal.SIGSTOP)
    became(child, os.WSTOPPED)
    assert state(process) == "stopped"
    assert liveness.chain(child.pid)[0] == process, "stopped or not, it is the same"
    child.send_signal(signal.SIGCONT)
    became(child, os.WCONTINUED)
    assert state(process) == "alive"
    child.send_signal(signal.SIGSTOP)
    became(child, os.WSTOPPED)
    child.kill()
    became(child, os.WEXITED)
    assert state(process) == "dead", "killed while it stood"


def test_a_traced_process_that_is_held_is_not_live_m6(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A debugger's breakpoint; tracing for real needs leave that a test may not have."""
    _, process = waiting(start)
    if liveness._LINUX:
        real = Path.read_bytes
        monkeypatch.setattr(
            Path, "read_bytes", lambda path: real(path).replace(b") S ", b") t ").replace(b") R ", b") t ")
        )
    else:
        monkeypatch.setattr(psutil.Process, "status", lambda _: psutil.STATUS_TRACING_STOP)
    assert state(process) == "stopped"


def test_a_pid_that_came_again_is_another_process_m5(start: Start) -> None:
    child, process = waiting(start)
    for ticks in (process.ticks - 1, process.ticks + 1, 0):
        assert state(replace(process, ticks=ticks)) == "dead"
    child.send_signal(signal.SIGSTOP)
    became(child, os.WSTOPPED)
    assert state(replace(process, ticks=process.ticks - 1)) == "dead", "whatever the newcomer does"


def test_who_a_process_is_stays_while_it_lives_and_no_later_one_is_the_same_m5(start: Start) -> None:
    _, older = waiting(start)
    begin = time.monotonic()

    def later() -> bool:
        return waiting(start)[1].ticks > older.ticks

    until(later, "the kernel's clock ticks")
    assert time.monotonic() - begin < 5.0, "a tick is a hundredth of a second"
    assert liveness.chain(older.pid)[0] == older and state(older) == "alive"


def test_a_process_of_another_boot_is_dead_though_its_pid_and_ticks_are_there_m5(start: Start) -> None:
    _, process = waiting(start)
    assert state(replace(process, boot="another boot")) == "dead"


def test_a_boot_has_one_name_and_no_empty_one_m5(face: str) -> None:
    assert liveness.boot_id() == liveness.boot_id() != ""
    if face == "proc":
        told = subprocess.run(["cat", "/proc/sys/kernel/random/boot_id"], capture_output=True, check=True, text=True)
        assert liveness.boot_id() == told.stdout.strip()


def test_a_process_nobody_can_know_of_counts_as_alive() -> None:
    unknown = Process(0, 0, "client 7")
    found = liveness.look([unknown])
    assert found.alive == {unknown} and not found.stopped and not found.dead


def test_a_look_tells_of_each_process_once_m6(start: Start) -> None:
    alive, stopped, dead = (waiting(start) for _ in range(3))
    stopped[0].send_signal(signal.SIGSTOP)
    became(stopped[0], os.WSTOPPED)
    dead[0].kill()
    became(dead[0], os.WEXITED)
    found = liveness.look([alive[1], stopped[1], dead[1], alive[1]])
    assert [*found.alive, *found.stopped, *found.dead] == [alive[1], stopped[1], dead[1]]
    nothing = liveness.look([])
    assert not nothing.alive | nothing.stopped | nothing.dead


def forbid(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """From now on nobody may look at this process (hidepid, another user's)."""
    if liveness._LINUX:
        real = Path.read_bytes

        def read(path: Path) -> bytes:
            if path == Path(f"/proc/{pid}/stat"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", read)
        return
    status = psutil.Process.status

    def told(process: psutil.Process) -> Any:
        if process.pid == pid:
            raise psutil.AccessDenied(pid)
        return status(process)

    monkeypatch.setattr(psutil.Process, "status", told)


def test_a_process_that_may_not_be_looked_at_is_alive_m6(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child, process = waiting(start)
    forbid(monkeypatch, child.pid)
    assert state(process) == "alive"
    assert state(replace(process, boot="another boot")) == "dead", "of an earlier boot it cannot be"


@linux_only
@pytest.mark.parametrize("name", ["a) Z 1 (b", ") T 1", "(((", "in two\nlines", ") ) 0 0"])
def test_no_name_of_a_process_deceives_m6(start: Start, name: str) -> None:
    child = start(
        f"import sys; open('/proc/self/comm', 'w').write({name!r}); print('here', flush=True); sys.stdin.read()"
    )
    assert line(child) == "here"
    assert name in Path(f"/proc/{child.pid}/stat").read_text(), "it is called so"
    process, parent, *_ = liveness.chain(child.pid)
    assert parent.pid == os.getpid() and state(process) == "alive"
    assert liveness.command(child.pid) == name


@linux_only
def test_a_process_that_ends_while_it_is_looked_at_is_dead(
    start: Start, monkeypatch: pytest.MonkeyPatch, face: str
) -> None:
    """The file can be opened, and reading it fails: it ended in between."""
    if face != "proc":
        return
    _, process = waiting(start)

    def gone(path: Path) -> bytes:
        raise ProcessLookupError(3, "No such process", str(path))

    monkeypatch.setattr(Path, "read_bytes", gone)
    assert state(process) == "dead" and liveness.chain(process.pid) == ()


# ---------------------------------------------------------------- ancestors


def test_the_ancestors_of_a_process_come_nearest_first_m5(start: Start) -> None:
    child = start(NESTED, "3", NESTED)
    pids = [int(line(child)) for _ in range(4)]
    assert pids[0] == child.pid
    found = liveness.chain(pids[-1])
    assert [process.pid for process in found[:5]] == [*reversed(pids), os.getpid()]
    assert found[4:] == liveness.chain(os.getpid()), "and so on, up to the first of all"
    assert all(state(process) == "alive" for process in found[:5])
    assert len({process.boot for process in found}) == 1
    ticks = [process.ticks for process in found[:5]]
    assert ticks == sorted(ticks, reverse=True), "nobody is older than who started them"


def test_the_ancestors_end_where_a_process_may_not_be_looked_at_m5(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(NESTED, "2", NESTED)
    pids = [int(line(child)) for _ in range(3)]
    forbid(monkeypatch, pids[0])
    assert [process.pid for process in liveness.chain(pids[2])] == [pids[2], pids[1]]
    assert liveness.chain(pids[0]) == ()


def test_a_child_whose_parent_has_ended_is_below_it_no_longer_m5(start: Start) -> None:
    child = start(ORPHAN)
    orphan, parent, *_ = liveness.chain(int(line(child)))
    assert parent.pid == child.pid
    assert child.stdin
    child.stdin.write("go\n")
    child.stdin.flush()
    assert line(child) == "alone"
    child.wait(PATIENCE_S)
    again, *above = liveness.chain(orphan.pid)
    assert again == orphan and state(orphan) == "alive", "it is who it was"
    assert parent not in above and state(parent) == "dead"


@pytest.mark.parametrize("pid", [0, -1, -4000])
def test_what_is_no_pid_has_no_ancestors(pid: int) -> None:
    assert liveness.chain(pid) == ()


def test_ancestors_that_never_end_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read one after the other while pids come again, the parents can seem to go round."""
    monkeypatch.setattr(liveness, "_facts", lambda pid: ("S", pid % 2 + 1, 7))
    assert 2 < len(liveness.chain(1)) <= 100


# ---------------------------------------------------------------- who is at the other end


def test_the_peer_of_a_socket_is_known_by_its_pid_and_of_anything_else_nobody_is(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "_LINUX", sys.platform.startswith("linux"))
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("peer")
        listener.listen()
        child = start(CONNECTS)
        with listener.accept()[0] as peer:
            assert liveness.peer_pid(peer.fileno()) == child.pid
            assert peer.fileno() >= 0 and liveness.peer_pid(peer.fileno()) == child.pid, "asking closes nothing"
    with (tmp_path / "file").open("w") as file:
        assert liveness.peer_pid(file.fileno()) == 0
    assert liveness.peer_pid(file_number_of_nothing()) == 0


def file_number_of_nothing() -> int:
    """A descriptor that was closed."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_what_the_daemon_itself_takes_grows_with_its_work() -> None:
    before = liveness.own_cost()
    until(lambda: liveness.own_cost()["cpu_s"] > before["cpu_s"], "CPU is used by asking")
    assert before["rss_bytes"] > 1 << 20
