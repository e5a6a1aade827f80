"""Which process a run is for, and when a process is gone. Linux and macOS, standard library alone."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic

from msgspec import Struct

_SHELLS = frozenset({"sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "zsh"})
_STEP_S = 0.02
_MOST_ANCESTORS = 64


class Ancestor(Struct, frozen=True):
    """A process above this one: its own parent, and the words it was started with."""

    pid: int
    parent: int
    words: tuple[str, ...]


def ancestors(pid: int) -> list[Ancestor]:
    """A process and those above it, nearest first; as far as they can be read."""
    found: list[Ancestor] = []
    while pid > 0 and len(found) < _MOST_ANCESTORS:
        one = _read(pid)
        if one is None:
            break
        found.append(one)
        pid = one.parent
    return found


def _read(pid: int) -> Ancestor | None:
    if sys.platform != "darwin":
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return None
        # The second field is the name in parentheses and may hold anything; the parent comes after it.
        parent = int(stat.rpartition(b")")[2].split()[1])
        return Ancestor(pid, parent, tuple(os.fsdecode(word) for word in words.split(b"\0")[:-1]))
    told = subprocess.run(
        ["ps", "-o", "ppid=,command=", "-p", str(pid)], capture_output=True, text=True, errors="replace", check=False
    )
    number, _, command = told.stdout.strip().partition(" ")
    return Ancestor(pid, int(number), tuple(command.split())) if number.isdigit() else None


def agent_among(chain: list[Ancestor]) -> int:
    """The nearest process that stays: no ``sh -c`` that ran a hook, no subshell of a script. 0 = none.

    A run that is begun for a shell which ends at once would end with it.
    """
    for number, one in enumerate(chain):
        above = chain[number + 1] if number + 1 < len(chain) else None
        if one.pid > 1 and not _passing(one, above):
            return one.pid
    return chain[0].pid if chain else 0


def _passing(one: Ancestor, above: Ancestor | None) -> bool:
    if not one.words or Path(one.words[0]).name.removeprefix("-") not in _SHELLS:
        return False
    if above is not None and above.words == one.words:
        return True  # a subshell: the fork of a shell, with its words
    for word in one.words[1:]:
        if not word.startswith(("-", "+")):
            return False
        if word == "--command" or (not word.startswith("--") and "c" in word):
            return True
    return False


class Departure:
    """Waits for a process to be gone; made while it is there, so that its number cannot be another's."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = -1
        if hasattr(os, "pidfd_open"):
            try:
                self._descriptor = os.pidfd_open(pid)
            except OSError:
                self._descriptor = -1  # gone already, or a kernel without it: asked by number

    def wait(self, seconds: float) -> bool:
        """Whether it is gone within so many seconds."""
        if self._descriptor >= 0:
            poller = select.poll()
            poller.register(self._descriptor, select.POLLIN)
            gone = bool(poller.poll(seconds * 1000))
            os.close(self._descriptor)
            return gone
        deadline, pause = monotonic() + seconds, Event()
        while self._exists():
            if monotonic() >= deadline:
                return False
            pause.wait(_STEP_S)
        return True

    def _exists(self) -> bool:
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
