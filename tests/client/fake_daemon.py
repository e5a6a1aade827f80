"""A daemon that remembers nothing but what it was asked: a ROUTER on a thread, answering by a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import Any

import zmq
from milk_client import wire

PATIENCE_S = 10.0
"""How long a test waits for what must come; only a failing one takes that long."""

Script = Callable[[wire.Request], Any]


def percept(text: str = "tabs, not spaces", id: str = "1f3a9c") -> wire.Percept:
    """A percept as the daemon would send it."""
    return wire.Percept(
        id=id,
        content=text,
        w=0.5,
        created_at="2026-01-01T00:00:00Z",
        updated_at="2026-01-01T00:00:00Z",
        scope="session",
        session="app",
        rank_score=0.5,
    )


def recorded(request: wire.Record) -> wire.Recorded:
    """The answer to a statement: a percept that holds its words."""
    return wire.Recorded(percept=percept(request.content), outcome="new")


def obliging(request: wire.Request) -> Any:
    """What a daemon without any trouble answers."""
    match request:
        case wire.Record():
            return recorded(request)
        case wire.Get():
            return wire.Percepts(percepts=[percept(request.query)])
        case wire.Detach() | wire.Turn():
            return wire.Passed(report=wire.Report(session="app"))
        case _:
            return wire.Done()


class FakeDaemon:
    """Answers what ``script`` returns: a reply, bytes, None (no answer), or a list of these.

    It gives each reply the request's id unless it has one. Greetings are answered by it, unless the script
    returns something for them. ``seen`` holds the requests other than greetings, ``raw`` their bytes.
    """

    def __init__(self, path: Path, script: Script = obliging, *, boot: str = "boot-1", **welcome: Any) -> None:
        self.endpoint = f"ipc://{path}"
        self.script = script
        self.boot = boot
        self.welcome = welcome
        self.greetings: list[wire.Hello | wire.Attach] = []
        self.seen: list[wire.Request] = []
        self.raw: list[bytes] = []
        self._heard = threading.Condition()
        self._stop = threading.Event()
        self._bound = threading.Event()
        self._later: list[tuple[bytes, bytes]] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> FakeDaemon:
        self._thread.start()
        assert self._bound.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def until(self, true: Callable[[], bool]) -> None:
        """Return when ``true()``, looked at after every message that comes in."""
        with self._heard:
            assert self._heard.wait_for(true, PATIENCE_S)

    def of(self, kind: type[wire.Request]) -> list[Any]:
        """The requests of one kind."""
        return [request for request in self.seen if isinstance(request, kind)]

    def _serve(self) -> None:
        context = zmq.Context()
        router = context.socket(zmq.ROUTER)
        router.linger = 0
        router.bind(self.endpoint)
        self._bound.set()
        try:
            while not self._stop.is_set():
                if router.poll(5):
                    peer, data = router.recv_multipart()
                    for reply in self._answers(data):
                        router.send_multipart([peer, reply])
        finally:
            router.close()
            context.term()

    def _answers(self, data: bytes) -> Iterable[bytes]:
        request = wire.decode_request(data)
        greeting = isinstance(request, wire.Hello | wire.Attach)
        with self._heard:
            if isinstance(request, wire.Hello | wire.Attach):
                self.greetings.append(request)
            else:
                self.seen.append(request)
                self.raw.append(data)
            answer = self.script(request) if not greeting or self.script is not obliging else None
            self._heard.notify_all()
        if greeting and (answer is None or isinstance(answer, wire.Done)):
            answer = self._welcome(request)
        for reply in answer if isinstance(answer, list) else [answer]:
            if isinstance(reply, bytes):
                yield reply
            elif reply is not None:
                reply.id = reply.id or request.id
                yield wire.encode(reply)

    def _welcome(self, request: wire.Request) -> wire.Welcome:
        fields: dict[str, Any] = {
            "protocol": wire.PROTOCOL,
            "version": wire.VERSION,
            "pid": 1,
            "home": "/home",
            "boot": self.boot,
            "events": "",
            "run": request.run,
            "session": request.session,
            "role": request.role,
        }
        return wire.Welcome(**(fields | self.welcome))


def seconds(since: float) -> float:
    """Seconds since a monotonic moment."""
    return monotonic() - since
