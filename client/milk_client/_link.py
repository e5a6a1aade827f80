"""One connection to a daemon, and what a fork does to it.

A link never reconnects by itself: libzmq would do so silently, and a daemon that was restarted in
between would be asked things by a client that it has not met. When the connection is gone, `lost` says
so; the face opens another link, greets, and sends again what has no answer yet.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Protocol
from weakref import WeakSet

import zmq

from .errors import NoDaemon

_PROBE_S = 0.5
"""Longest wait for a raw TCP connect; one to a Unix socket answers at once."""

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}
"""One libzmq context a process. A forked child makes its own: its parent's threads are not in it."""

_inherited: list[object] = []
"""What a forked child must not close, for it would close its parent's: kept, so that nothing collects it."""


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """The libzmq context of this process."""
    pid = os.getpid()
    if pid not in _contexts:
        _contexts[pid] = zmq.Context()
    return _contexts[pid]


class Link:
    """A DEALER on one endpoint, for one thread at a time. ``immediate`` keeps it from queueing for nobody."""

    def __init__(self, endpoint: str) -> None:
        """Start connecting to ``endpoint``; never waits. Raises NoDaemon for one that libzmq cannot use."""
        self.endpoint = endpoint
        self._socket = context().socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.immediate = True
        self._socket.reconnect_ivl = -1
        # No limit here: being unable to send then means that nobody is connected, and nothing else.
        self._socket.sndhwm = 0
        self._socket.rcvhwm = 0
        if endpoint.startswith("tcp:"):
            self._socket.heartbeat_ivl = 1000
            self._socket.heartbeat_timeout = 5000
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self._socket.close()
            raise NoDaemon(f"Cannot connect to {endpoint}: {error}.") from None

    @property
    def fd(self) -> int:
        """Becomes readable when something may have changed; edge-triggered, so `take` until None after it."""
        return self._socket.fileno()

    def wait_open(self, seconds: float) -> bool:
        """Whether the connection stands, waiting for it up to ``seconds``."""
        return bool(self._socket.poll(max(0, int(seconds * 1000)), zmq.POLLOUT))

    def lost(self) -> bool:
        """Whether nobody is connected (any longer)."""
        return not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT

    def send(self, data: bytes) -> bool:
        """Hand over one message; False when nobody is connected, and nothing was sent."""
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def take(self) -> bytes | None:
        """One message that has arrived, without waiting."""
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def wait(self, seconds: float) -> bytes | None:
        """One message, waiting for it up to ``seconds``."""
        # Rounded up: a wait of 0.4 ms must not become a busy loop of waits of 0 ms.
        if self._socket.poll(max(0, int(seconds * 1000 + 0.999)), zmq.POLLIN):
            return self.take()
        return None

    def close(self) -> None:
        """Let go of it; what has not been sent is dropped."""
        self._socket.close()


def listens(endpoint: str) -> bool:
    """Whether somebody accepts connections there, be it the service manager or a daemon that is starting.

    Raises NoDaemon where this process may not connect.
    """
    try:
        if endpoint.startswith("ipc://"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
                raw.setblocking(False)
                raw.connect(endpoint.removeprefix("ipc://"))
        else:
            host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S).close()
    except BlockingIOError:
        return True  # its queue of connections is full: busy, but there
    except PermissionError as error:
        raise NoDaemon(
            f"No permission to connect to {endpoint}: {error.strerror}.",
            hint="It belongs to another user, or a sandbox shuts it off: run this outside, or as that user.",
        ) from None
    except (OSError, ValueError):
        return False
    return True


def foreign_owner(folder: os.PathLike[str]) -> bool:
    """Whether a runtime directory exists that is not this user's own: anybody may make one in ``/tmp``."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode)


# ---------------------------------------------------------------- fork


class Forks(Protocol):
    """A face that goes on in a forked child."""

    def _forked(self) -> object:
        """Become the child's own; what is returned is the parent's and never closed here."""


_forking: WeakSet[Forks] = WeakSet()


def survives_fork(face: Forks) -> None:
    """Have ``face._forked()`` called in every forked child."""
    _forking.add(face)


def _after_fork() -> None:
    for face in list(_forking):
        _inherited.append(face._forked())


os.register_at_fork(after_in_child=_after_fork)
