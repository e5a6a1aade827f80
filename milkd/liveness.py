"""Is that process still that process, and running? (M5, M6)

Identity is pid + start time in ticks since boot + boot id: psutil's create time moves when the wall clock is
set, and a pid comes again. A zombie is dead, a stopped process is not live, permission denied is alive.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import psutil

from milkd.clocks import Process
from milkd.runs import Sweep

_LINUX = sys.platform.startswith("linux")
_STOPPED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
_GONE = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
_MAX_DEPTH = 64


@lru_cache(maxsize=1)
def boot_id() -> str:
    """What tells this boot of the machine from any other."""
    if _LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{int(psutil.boot_time())}"


def look(processes: Iterable[Process]) -> Sweep:
    """Which of these are alive, stopped or dead. A process nobody can know of (pid 0) counts as alive."""
    alive: set[Process] = set()
    stopped: set[Process] = set()
    dead: set[Process] = set()
    for process in processes:
        state = _state(process) if process.pid else "alive"
        {"alive": alive, "stopped": stopped, "dead": dead}[state].add(process)
    return Sweep(frozenset(alive), frozenset(stopped), frozenset(dead))


def chain(pid: int) -> tuple[Process, ...]:
    """A process and its ancestors, nearest first; empty where there is no such process."""
    found: list[Process] = []
    while pid > 0 and len(found) < _MAX_DEPTH:
        try:
            facts = _facts(pid)
        except PermissionError:  # another user's: no agent of this home lies beyond it
            facts = None
        if facts is None:
            break
        found.append(Process(pid, facts[2], boot_id()))
        pid = facts[1]
    return tuple(found)


def peer_pid(descriptor: int) -> int:
    """The pid at the other end of a Unix socket; 0 where it cannot be known."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as peer:
            if _LINUX:
                size = struct.calcsize("3i")
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
                return int(struct.unpack("3i", credentials)[0])
            # macOS: SOL_LOCAL, LOCAL_PEERPID
            return int.from_bytes(peer.getsockopt(0, 2, 4), sys.byteorder)
    except OSError:
        return 0


def command(pid: int) -> str:
    """The name of a process, for people; "" where it cannot be read."""
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""


def own_cost() -> dict[str, float]:
    """What this process itself takes: bytes of memory, seconds of CPU."""
    process = psutil.Process()
    cpu = process.cpu_times()
    return {"rss_bytes": float(process.memory_info().rss), "cpu_s": cpu.user + cpu.system}


def _state(process: Process) -> str:
    if process.boot != boot_id():
        return "dead"
    try:
        facts = _facts(process.pid)
    except PermissionError:
        return "alive"
    if facts is None or facts[2] != process.ticks or facts[0] in ("Z", "X", "x"):
        return "dead"
    return "stopped" if facts[0] in ("T", "t") else "alive"


def _facts(pid: int) -> tuple[str, int, int] | None:
    """(state letter, parent's pid, start in ticks since boot), or None for no such process."""
    if not _LINUX:
        return _facts_by_psutil(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and brackets: fields begin after the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1]), int(fields[19])


def _facts_by_psutil(pid: int) -> tuple[str, int, int] | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            status, parent = process.status(), process.ppid()
            ticks = int(process.create_time() * 100) - int(psutil.boot_time() * 100)
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from None
    letter = "Z" if status in _GONE else "T" if status in _STOPPED else "R"
    return letter, parent, ticks
