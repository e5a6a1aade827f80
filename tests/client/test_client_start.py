"""Starting a daemon: detached, one of many starters, or told why not. And what a client costs to load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest
from fake_daemon import PATIENCE_S, seconds
from milk_client import Milk, NoDaemon, _start, paths

DAEMON = """
import fcntl, json, os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from fake_daemon import FakeDaemon
home = Path({home!r})
lock = os.open(home / "run/lock", os.O_CREAT | os.O_RDWR, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(3)
facts = dict(pid=os.getpid(), ppid=os.getppid(), sid=os.getsid(0), cwd=os.getcwd(), env=sorted(os.environ))
facts["stdin"] = os.readlink("/dev/fd/0") if os.path.exists("/proc") else ""
(home / f"facts-{{os.getpid()}}").write_text(json.dumps(facts))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with FakeDaemon(home / "run/milkd.sock"):
    signal.pause()
"""


@pytest.fixture
def daemon_script(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The command that a starter runs; whatever it started is stopped after the test."""
    script = home / "daemon.py"
    script.write_text(DAEMON.format(here=str(Path(__file__).parent), home=str(home)))
    monkeypatch.setattr(_start, "commands", lambda _home: [[sys.executable, str(script)]])
    yield script
    for facts in home.glob("facts-*"):
        os.kill(int(facts.name.removeprefix("facts-")), signal.SIGTERM)


def test_a_daemon_is_started_for_good_and_leaves_no_child(
    home: Path, daemon_script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("SECRET", "x")
    with Milk("app", home=home, timeout=PATIENCE_S) as agent:
        agent.record("x")
    (facts,) = home.glob("facts-*")
    told = facts.read_text()
    assert json.loads(told)["stdin"] in ("", "/dev/null")
    assert daemon_script.exists()
    assert '"cwd": "/"' in told
    assert "PYTHONPATH" not in told
    assert "SECRET" not in told
    assert f'"ppid": {os.getpid()},' not in told
    assert f'"sid": {os.getsid(0)},' not in told
    assert (home / "run/milkd.log").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.usefixtures("daemon_script")
def test_many_starters_end_up_with_one_daemon(home: Path) -> None:
    agents = [Milk("app", home=home, timeout=PATIENCE_S) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(Milk.connect, agents))
    for agent in agents:
        agent.close()
        assert agent.parting is None
    assert len(list(home.glob("facts-*"))) == 1


@pytest.mark.parametrize("status", [1, 2])
def test_a_daemon_that_cannot_start_is_quoted(home: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    (home / "run/milkd.log").write_text("an old story\n")
    command = [sys.executable, "-c", f"import sys; print('bad knob', file=sys.stderr); sys.exit({status})"]
    monkeypatch.setattr(_start, "commands", lambda _home: [command])
    started = monotonic()
    with pytest.raises(NoDaemon, match="bad knob") as caught:
        Milk("app", home=home, timeout=PATIENCE_S).connect()
    assert "old story" not in str(caught.value)
    assert seconds(started) < PATIENCE_S / 2


@pytest.mark.parametrize("kills", [2, 9])
def test_a_daemon_that_is_killed_while_it_starts_is_started_anew_but_not_for_ever(
    home: Path, monkeypatch: pytest.MonkeyPatch, daemon_script: Path, tmp_path: Path, kills: int
) -> None:
    tally = tmp_path / "tally"
    code = f"""
import os, sys
with open({str(tally)!r}, "a") as tally:
    tally.write("x")
if os.path.getsize({str(tally)!r}) <= {kills}:
    os.kill(os.getpid(), 9)
os.execv(sys.executable, [sys.executable, {str(daemon_script)!r}])
"""
    monkeypatch.setattr(_start, "commands", lambda _home: [[sys.executable, "-c", code]])
    agent = Milk("app", home=home, timeout=PATIENCE_S)
    if kills == 2:
        agent.connect()
    else:
        with pytest.raises(NoDaemon, match="status 247"):
            agent.connect()
    agent.close()
    assert tally.read_text() == ("xxx" if kills == 2 else "xxxx")


def test_a_client_that_was_installed_alone_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('No module named milkd')"]
    monkeypatch.setattr(_start, "commands", lambda _home: [command, ["/nonexistent/milkd"]])
    with pytest.raises(NoDaemon, match="/nonexistent/milkd"):
        Milk("app", home=home, timeout=PATIENCE_S).connect()
    monkeypatch.setattr(_start, "commands", lambda _home: [command])
    with pytest.raises(NoDaemon) as caught:
        Milk("app", home=home, timeout=PATIENCE_S).connect()
    assert "pip install milkd" in caught.value.hint


def test_a_lock_held_out_of_reach_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_start, "commands", lambda _home: [[sys.executable, "-c", "import sys; sys.exit(3)"]])
    with pytest.raises(NoDaemon, match="holds the home's lock"):
        Milk("app", home=home, timeout=0.5).connect()


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoDaemon, match="cannot be written") as caught:
        Milk("app", home=tmp_path / "file" / "home", timeout=PATIENCE_S).connect()
    assert "milkd --home" in caught.value.hint


def test_the_commands_and_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    where = paths.find_home(home, {})
    assert _start.commands(where) == [[sys.executable, "-m", "milkd", "--home", str(home)]]
    given = {
        "PATH": "p",
        "LC_ALL": "C",
        "XDG_RUNTIME_DIR": "x",
        "PYTHONPATH": "no",
        "MILK_ROLE": "no",
        "HOME": "h",
    }
    assert sorted(_start.clean_environment(given)) == ["HOME", "LC_ALL", "PATH", "XDG_RUNTIME_DIR"]


def test_the_service_starts_the_daemon_of_the_default_home_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    default = paths.find_home(None, {})
    assert _start.service_command(default) is None
    unit = tmp_path / ".config/systemd/user/milkd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("")
    assert _start.service_command(default) == ["systemctl", "--user", "start", "milkd.service"]
    assert _start.service_command(paths.find_home(tmp_path / "other", {})) is None


def test_a_client_loads_nothing_that_it_does_not_need() -> None:
    costly = {"asyncio", "subprocess", "dataclasses", "logging", "milkd", "milkctl", "click"}
    code = "import sys; before = set(sys.modules); import milk_client; print(*(set(sys.modules) - before))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert costly.isdisjoint(told.stdout.split())
