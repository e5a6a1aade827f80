"""Starting a daemon on behalf of a client: through the service manager where it is installed, else detached.

Loaded only when no daemon runs. Several clients may start one at the same moment: the home's lock lets
one daemon win, the others exit with status 3 and everybody waits for the winner.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from .errors import NoDaemon
from .paths import Home, find_home

_KEPT = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV"})
_KEPT_PREFIXES = ("LC_", "XDG_")
_STEP_S = 0.02
_AGAIN_S = 0.25
"""Between losing the lock and trying again: the winner may have been a daemon that was just stopping."""
_ALREADY_RUNNING = 3
_KILLED_MAX = 3
"""How often a daemon that somebody killed while it started is started anew."""
_TAIL_BYTES = 4000

SYSTEMD_UNIT = "milkd.service"
LAUNCHD_LABEL = "milkd"


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What a daemon inherits: nothing of one agent's settings, and no PYTHONPATH of its project."""
    return {key: value for key, value in env.items() if key in _KEPT or key.startswith(_KEPT_PREFIXES)}


def commands(home: Home) -> list[list[str]]:
    """The ways to run the daemon, best first: the distribution of this client, then whatever is on PATH."""
    found = [[sys.executable, "-m", "milkd", "--home", str(home.root)]]
    on_path = shutil.which("milkd")
    if on_path:
        found.append([on_path, "--home", str(home.root)])
    return found


def service_command(home: Home) -> list[str] | None:
    """How to start the installed service, if there is one and it serves this home."""
    if home.root != find_home(None, {}).root:
        return None
    if sys.platform == "darwin":
        if (Path.home() / "Library/LaunchAgents" / f"{LAUNCHD_LABEL}.plist").exists():
            return ["launchctl", "kickstart", f"gui/{os.getuid()}/{LAUNCHD_LABEL}"]
    elif (Path.home() / ".config/systemd/user" / SYSTEMD_UNIT).exists():
        return ["systemctl", "--user", "start", SYSTEMD_UNIT]
    return None


class Starter:
    """One attempt to have a daemon running on a home; `step` until it can be reached, then `release`."""

    def __init__(self, home: Home, env: Mapping[str, str]) -> None:
        """Prepare the home. Raises NoDaemon where it cannot be written to."""
        self._home = home
        self._env = clean_environment(env)
        self._commands = commands(home)
        self._service = service_command(home)
        self._by_service = False
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self._lost_to_another = False
        self._killed = 0
        try:
            home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            home.run.mkdir(mode=0o700, exist_ok=True)
            self._log = os.open(home.log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NoDaemon(
                f"No milkd runs on {home.root}, and its home cannot be written: {error.strerror} ({error.filename}).",
                hint=f"Run this outside of the sandbox: milkd --home {home.root}",
            ) from None
        self._log_start = os.fstat(self._log).st_size

    def step(self, deadline: float) -> None:
        """Start a daemon if none is on its way, else wait a moment for it. Raises NoDaemon if that fails."""
        if self._service:
            self._by_service = self._start_service(self._service, deadline)
            self._service = None
        elif self._process is None:
            if not self._by_service and monotonic() >= self._not_before:
                self._spawn()
        else:
            self._watch(self._process)

    def story(self) -> str:
        """What came of it so far, for an error."""
        if self._by_service:
            return "Its service was started and does not answer yet; its log tells more."
        if self._lost_to_another:
            return "A milkd holds the home's lock, but cannot be reached from here."
        return f"One was started and does not answer yet; {self._home.log} tells more."

    def release(self) -> None:
        """Leave whatever was started to itself."""
        os.close(self._log)
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it may have ended by itself
                # A byte, not only the end of the pipe: a child forked meanwhile holds the other end open.
                pipe.write(b"\n")
            process.wait()
        self._process = None

    def _start_service(self, command: list[str], deadline: float) -> bool:
        """Whether the service manager took the order."""
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                timeout=max(1.0, deadline - monotonic()),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _spawn(self) -> None:
        if not sys.executable:
            raise NoDaemon("No milkd runs, and this program does not know a Python to start one with.")
        helper = Path(__file__).with_name("_detach.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(helper), *self._commands[0]],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            cwd="/",
            env=self._env,
            bufsize=0,
            start_new_session=True,
        )

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        try:
            status = process.wait(_STEP_S)
        except subprocess.TimeoutExpired:
            return
        if process.stdin is not None:
            process.stdin.close()
        self._process = None
        if status in (0, _ALREADY_RUNNING):
            self._lost_to_another = True
            self._not_before = monotonic() + _AGAIN_S
            return
        if (status < 0 or status > 128) and self._killed < _KILLED_MAX:  # by a signal: nothing is wrong with it
            self._killed += 1
            return
        told = self._told()
        if len(self._commands) > 1 and (status == 127 or "No module named" in told):
            self._commands.pop(0)
            return
        raise NoDaemon(
            f"No milkd runs on {self._home.root}, and starting one failed (status {status}): "
            f"{told or 'it said nothing'}",
            hint="Is it installed? `pip install milkd` or `pipx install milkd`."
            if "No module named milkd" in told
            else f"Correct that, then try `milkd --home {self._home.root}` in a terminal.",
        )

    def _told(self) -> str:
        """The last lines that the daemon wrote to its log, but for those that tell of no trouble."""
        size = os.fstat(self._log).st_size
        start = max(self._log_start, size - _TAIL_BYTES)
        text = os.pread(self._log, size - start, start).decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip() and " INFO " not in line]
        return "\n".join(lines[-5:])
