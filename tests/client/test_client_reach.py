"""Finding the daemon of a home, and saying why there is none."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
from fake_daemon import PATIENCE_S, FakeDaemon, seconds
from milk_client import Milk, MilkError, NoDaemon, Timeout, _link, paths, wire


def milk(home: Path, **more: Any) -> Milk:
    return Milk("app", home=home, **({"autostart": False, "timeout": PATIENCE_S} | more))


@pytest.mark.parametrize("leftover", [False, True])
def test_no_daemon_is_told_at_once(home: Path, socket_path: Path, leftover: bool) -> None:
    if leftover:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(socket_path))
    started = monotonic()
    with pytest.raises(NoDaemon, match=str(home)) as caught:
        milk(home).turn()
    assert seconds(started) < 1.0
    assert f"milkd --home {home}" in caught.value.hint


def test_a_socket_that_accepts_means_starting(home: Path, socket_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as starting, ThreadPoolExecutor(1) as pool:
        starting.bind(str(socket_path))
        starting.listen()
        with pytest.raises(Timeout, match="starting"):
            milk(home, timeout=0.3).turn()
        turn = pool.submit(milk(home).turn)
        starting.accept()[0].close()
        starting.close()
        socket_path.unlink()
        # From here on nothing listens for a moment: the client was let in once, but never met a daemon.
        assert isinstance(turn.exception(PATIENCE_S), MilkError)


def test_the_endpoint_file_tells_where_a_daemon_listens(home: Path) -> None:
    with FakeDaemon(home / "other.sock") as daemon:
        tell(home, endpoint=daemon.endpoint)
        with milk(home) as agent:
            agent.turn()
        assert daemon.of(wire.Turn)


def test_a_stale_endpoint_file_does_not_hide_the_socket(home: Path, socket_path: Path) -> None:
    tell(home, endpoint=f"ipc://{home}/gone.sock")
    with FakeDaemon(socket_path) as daemon, milk(home) as agent:
        agent.turn()
        assert daemon.of(wire.Turn)


def test_a_home_of_another_machine_is_told(home: Path) -> None:
    tell(home, host="elsewhere", boot_id="other")
    with pytest.raises(NoDaemon, match="on host elsewhere"):
        milk(home).connect()


def tell(home: Path, **more: Any) -> None:
    """Write an endpoint file."""
    fields = {
        "endpoint": f"ipc://{home}/run/milkd.sock",
        "events": "",
        "pid": 1,
        "host": paths.this_host(),
        "boot_id": paths.this_boot(),
        "version": "0.1.0",
        "protocol": 1,
    }
    (home / "run" / "endpoint").write_bytes(msgspec.json.encode(fields | more))


def test_a_sandbox_starts_no_daemon(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "this_pid_namespace", lambda: "pid:[2]")
    tell(home, pid_ns="pid:[1]")
    with pytest.raises(NoDaemon, match="pid namespace") as caught:
        milk(home, autostart=True).connect()
    assert f"milkd --home {home}" in caught.value.hint


def test_a_runtime_directory_must_be_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _link.foreign_owner(home)
    assert not _link.foreign_owner(home / "missing")
    (home / "link").symlink_to(home)
    assert _link.foreign_owner(home / "link")
    long = home / ("x" * 100)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    short = paths.find_home(long, {"XDG_RUNTIME_DIR": str(home)}).sockets
    short.symlink_to(home)
    with pytest.raises(NoDaemon, match="pose as the daemon"):
        milk(long).connect()


def test_an_endpoint_that_is_none(home: Path) -> None:
    for endpoint in ("nonsense", "tcp://127.0.0.1:1", "ipc:///nonexistent/x"):
        with pytest.raises(NoDaemon):
            Milk("app", home=home, endpoint=endpoint, timeout=PATIENCE_S).connect()
