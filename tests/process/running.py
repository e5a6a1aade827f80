"""A daemon as a real process on a home of its own, and the waiting that tests of processes need."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from milk_client import MilkError, Statused, Tool
from milk_client.paths import Home, find_home

T = TypeVar("T")

PATIENCE_S = 20.0
"""How long a test waits for what must come; far above what it takes, so that a slow machine does not matter."""
QUICK = "[daemon]\nsweep_s = 0.05\n"
"""A config for tests about clocks: looks at the processes often, so that little time shows much."""
_never = threading.Event()


def until(look: Callable[[], T], *, within: float = PATIENCE_S, what: str = "") -> T:
    """Ask until the answer is true; returns it. Fails with the last answer after ``within`` seconds."""
    deadline = time.monotonic() + within
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within:g} s: {what or look}; last seen: {found!r}")
        _never.wait(0.01)


def pass_time(seconds: float) -> float:
    """Real time that a test is about (a clock must, or must not, move); returns how much it was."""
    begin = time.monotonic()
    _never.wait(seconds)
    return time.monotonic() - begin


def environment(**more: str) -> dict[str, str]:
    """The developer's environment without any word of milk's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MILK", "COV", "NOTIFY_SOCKET"))}
    return {**kept, **more}


def is_dead(pid: int) -> bool:
    """Whether a process is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text[text.rindex(")") + 2] == "Z"


class Daemon:
    """One home and the daemon on it, if any; every process it starts is ended by `finish`."""

    def __init__(self, root: Path, log: Path, env: dict[str, str] | None = None) -> None:
        self.root = root
        self.memory = root / "memory"
        self.log = log
        self.env = env if env is not None else environment()
        self.process: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def home(self) -> Home:
        return find_home(self.root, self.env)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def write_config(self, text: str) -> None:
        self.root.mkdir(mode=0o700, exist_ok=True)
        (self.root / "milkd.toml").write_text(text)

    def spawn(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start `milkd` without waiting for it."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "milkd", "--home", str(self.root), *arguments],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                **options,
            )
        self._started.append(process)
        return process

    def start(self, *arguments: str, **options: Any) -> Daemon:
        """Start it and wait until it answers."""
        process = self.process = self.spawn(*arguments, **options)

        def answers() -> bool:
            assert process.poll() is None, f"milkd ended with {process.returncode}: {self.told()}"
            try:
                return self.status().pid == process.pid
            except MilkError:
                return False

        until(answers, what="the daemon answers")
        return self

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run `milkd` to its end; its exit status and what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "milkd", "--home", str(self.root), *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stdout.decode()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it by a signal; its exit status. Within 5 s, as promised."""
        assert self.process is not None
        self.process.send_signal(how)
        status = self.process.wait(5.0)
        self.process = None
        return status

    def restart(self) -> Daemon:
        """Kill it and start it anew."""
        self.kill()
        return self.start()

    def finish(self) -> None:
        """End whatever was started here."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()

    # ------------------------------------------------------------ asking

    def tool(self, session: str = "s", **more: Any) -> Tool:
        """A person's tool on this home; starts nothing."""
        return Tool(session, home=self.root, autostart=False, run="", **more)

    def status(self) -> Statused:
        with self.tool() as tool:
            return tool.status()

    def clock(self, scope: str = "global") -> float:
        clocks = self.status().clocks
        return float(clocks["global_s"] if scope == "global" else clocks["sessions"].get(scope, 0.0))

    def told(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    def file(self, name: str) -> dict[str, Any]:
        """A JSON file as it is on disk."""
        found: dict[str, Any] = json.loads((self.memory / name).read_bytes())
        return found

    def contents(self, name: str) -> set[str]:
        """The contents in a scope's file; none where there is no file."""
        if not (self.memory / f"{name}.json").exists():
            return set()
        return {percept["content"] for percept in self.file(f"{name}.json")["percepts"]}
