"""The event stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import zmq
from fake_daemon import PATIENCE_S
from milk_client import Events, watch, wire


class Station:
    """A publisher that says nothing before somebody listens."""

    def __init__(self, path: Path) -> None:
        self.endpoint = f"ipc://{path}"
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.linger = 0
        self._socket.bind(self.endpoint)

    def heard(self) -> None:
        """Wait for a subscription."""
        assert self._socket.poll(PATIENCE_S * 1000)
        self._socket.recv()

    def say(self, kind: str, number: int) -> None:
        event = wire.Event(kind=kind, at="2026-01-01T00:00:00Z", number=number)
        self.send(kind, wire.encode(event))

    def send(self, topic: str, data: bytes) -> None:
        self._socket.send_multipart([topic.encode(), data])

    def close(self) -> None:
        self._socket.close()
        self._context.term()


@pytest.fixture
def station(home: Path) -> Iterator[Station]:
    made = Station(home / "events.sock")
    yield made
    made.close()


def test_events_come_in_order_and_what_is_no_event_is_counted(station: Station) -> None:
    with Events(station.endpoint) as events:
        station.heard()
        station.say("recorded", 1)
        station.send("novelty", b"\xc1")
        station.say("pass", 2)
        got = [events.next(PATIENCE_S), events.next(PATIENCE_S)]
        assert [(event.kind, event.number) for event in got if event] == [("recorded", 1), ("pass", 2)]
        assert events.unreadable == 1
        assert events.next(0.01) is None


def test_a_kind_is_meant_whole(station: Station) -> None:
    with Events(station.endpoint, ["pin"]) as events:
        station.heard()
        station.say("pinned", 1)
        station.say("pin", 2)
        event = events.next(PATIENCE_S)
        assert event is not None
        assert event.number == 2


def test_a_watch_goes_on_after_a_restart(home: Path) -> None:
    first = Station(home / "events.sock")
    got: list[int] = []

    def listen() -> None:
        for event in watch(first.endpoint):
            got.append(event.number)
            if event.kind == "stopping":
                return

    listener = Thread(target=listen)
    listener.start()
    first.heard()
    first.say("pass", 1)
    first.close()
    second = Station(home / "events.sock")
    second.heard()
    second.say("stopping", 2)
    listener.join(PATIENCE_S)
    second.close()
    assert got[-1:] == [2]
