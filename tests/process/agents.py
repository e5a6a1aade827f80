"""Agents as real processes, driven line by line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from running import PATIENCE_S, until

PROGRAM = Path(__file__).with_name("agent_program.py")


class Failed(Exception):
    """What the agent's call raised: ``code``, ``message`` and ``field`` of the error."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(f"{told['error']}: {told['message']}")
        self.code: str = told["error"]
        self.message: str = told["message"]
        self.field: str = told["field"]


class Agent:
    """One scripted agent process."""

    def __init__(self, env: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, do: str, **line: Any) -> None:
        """Have it do something, without waiting."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **line}).encode() + b"\n")

    def answer(self, within: float = 60.0) -> Any:
        """What came of the oldest thing not yet asked after. Raises Failed."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the agent does not answer"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, "the agent ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        told = json.loads(line)
        if "error" in told:
            raise Failed(told)
        return told["is"]

    def ask(self, do: str, *args: Any, who: str = "milk", **kw: Any) -> Any:
        """A method of its Milk."""
        self.say(do, who=who, args=list(args), kw=kw)
        return self.answer()

    def open(self, session: str | None = "s", *, who: str = "milk", **kw: Any) -> str:
        """Make a Milk and attach; its run id."""
        return str(self.ask("open", who=who, session=session, **kw))

    def record(self, text: str, *, who: str = "milk", **kw: Any) -> Any:
        return self.ask("record", text, who=who, **kw)

    def turn(self, who: str = "milk") -> Any:
        return self.ask("turn", who=who)

    def fork(self, text: str, who: str = "milk") -> str:
        self.say("fork", who=who, text=text)
        return str(self.answer())

    def shell(self, text: str) -> str:
        self.say("shell", text=text)
        return str(self.answer())

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def die(self) -> None:
        """kill -9, and reaped."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """End as a program ends: its input is over. It does not say goodbye to the daemon."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)

    def finish(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2] in "Tt"


def suspend(agent: Agent) -> None:
    """SIGSTOP, and wait until it stands."""
    agent.signal(signal.SIGSTOP)
    until(lambda: is_stopped(agent.pid), what="the process is stopped")
