"""The daemon's events, as they happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic

import msgspec
import zmq

from . import wire
from ._link import context


class Events:
    """A subscription to a daemon's event stream; what happened before it is not told.

    ``endpoint``: `Tool.welcome.events`. Reconnects by itself when the daemon restarts. A context manager.
    """

    def __init__(self, endpoint: str, kinds: Iterable[str] = ()) -> None:
        """Subscribe to events of ``kinds``, or to all."""
        self.kinds = frozenset(kinds)
        self.unreadable = 0
        """Messages that were no event known here (of a newer daemon): left out."""
        self._socket = context().socket(zmq.SUB)
        self._socket.linger = 0
        self._socket.reconnect_ivl_max = 1000
        for kind in self.kinds or ("",):
            self._socket.subscribe(kind)
        self._socket.connect(endpoint)

    def next(self, timeout_s: float | None = None) -> wire.Event | None:
        """The next event; None when ``timeout_s`` seconds brought none (None = wait for ever)."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while True:
            wait_ms = None if deadline is None else max(0, int((deadline - monotonic()) * 1000 + 0.999))
            if not self._socket.poll(wait_ms):
                return None
            event = self._decode(self._socket.recv_multipart())
            # Topics match by their beginning; a kind is meant whole.
            if event is not None and (not self.kinds or event.kind in self.kinds):
                return event

    def _decode(self, frames: list[bytes]) -> wire.Event | None:
        try:
            return wire.decode_event(frames[-1])
        except msgspec.DecodeError:
            self.unreadable += 1
            return None

    def __iter__(self) -> Iterator[wire.Event]:
        while True:
            event = self.next()
            if event is not None:
                yield event

    def close(self) -> None:
        """End the subscription."""
        self._socket.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def watch(endpoint: str, kinds: Iterable[str] = ()) -> Iterator[wire.Event]:
    """Events of ``kinds`` (or all) as they happen, for ever; ends the subscription when the caller stops."""
    with Events(endpoint, kinds) as events:
        yield from events
