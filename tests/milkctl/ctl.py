"""The real `milkctl` as a process, on a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from milk_client import Statused, Tool

WAIT_S = 20.0


class Done:
    """How a command ended."""

    def __init__(self, process: subprocess.CompletedProcess[bytes]) -> None:
        self.status = process.returncode
        self.out = process.stdout.decode()
        self.err = process.stderr.decode()
        assert "Traceback" not in self.out + self.err, self.err

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it is."""
        return json.loads(self.out)


class Ctl:
    """`milkctl` on a home, from a folder that is a project of its own."""

    def __init__(self, root: Path) -> None:
        self.home = root / "h"
        self.project = root / "app"
        self.project.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILK_", "PYTHON"))}
        self.environment = kept | {"MILK_HOME": str(self.home), "MILK_SESSION": "app"}

    def command(self, *words: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "milkctl", *words]

    def __call__(self, *words: str, stdin: bytes | None = None, **environment: str) -> Done:
        return Done(
            subprocess.run(
                self.command(*words),
                stdin=subprocess.DEVNULL if stdin is None else None,
                input=stdin,
                capture_output=True,
                cwd=self.project,
                env=self.environment | environment,
                timeout=WAIT_S,
                check=False,
            )
        )

    def ok(self, *words: str, **more: Any) -> str:
        """What it printed; it must have succeeded, without a word on standard error."""
        done = self(*words, **more)
        assert (done.status, done.err) == (0, ""), done.out + done.err
        return done.out

    def json(self, *words: str, **more: Any) -> Any:
        """Its JSON document; it must have succeeded."""
        return json.loads(self.ok("--json", *words, **more))

    def tool(self, session: str = "app") -> Tool:
        """The client in this process: for what a test needs and does not test."""
        return Tool(session, "user", run="", home=self.home, autostart=False, timeout=WAIT_S)

    def record(self, text: str, session: str = "app", **how: Any) -> str:
        """State a fact, by the client; its id."""
        with self.tool(session) as tool:
            return tool.record(text, **how).id

    def status(self) -> Statused:
        """The daemon's status, by the client."""
        with self.tool() as tool:
            return tool.status()

    def popen(self, *words: str) -> subprocess.Popen[bytes]:
        """A command that goes on."""
        return subprocess.Popen(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.project,
            env=self.environment,
        )


def until(what: Any, seconds: float = WAIT_S) -> Any:
    """Ask until the answer is true, with a deadline."""
    deadline, pause = monotonic() + seconds, Event()
    while not (answer := what()):
        assert monotonic() < deadline, "it did not come true in time"
        pause.wait(0.02)
    return answer


def end(home: Path) -> None:
    """End the daemon that was started on a home, if one is left."""
    try:
        told = json.loads((home / "run" / "endpoint").read_bytes())
    except FileNotFoundError:
        return
    try:
        os.kill(told["pid"], signal.SIGTERM)
    except ProcessLookupError:
        return
    until(lambda: not (home / "run" / "endpoint").exists())
