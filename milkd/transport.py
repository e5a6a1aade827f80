"""The ROUTER and PUB sockets: frames, not meaning.

Whatever arrives, the loop goes on: what is malformed or too large is answered where it has a return
address and counted; a peer that does not read loses its replies, not everybody's.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from pathlib import Path

import zmq
from milk_client import wire
from msgspec import Struct

BATCH = 256
"""Messages taken in one turn of the loop: they share a sync, and nobody waits long behind them."""
HARD_LIMIT_FACTOR = 16
"""Messages up to this many times ``max_message_bytes`` are read, to be answered `too_large`; beyond it
libzmq drops the connection, which guards the daemon's memory."""


class Incoming(Struct, frozen=True):
    """One message as it came: who to answer, its bytes, and the descriptor of its connection."""

    address: bytes
    data: bytes
    descriptor: int
    well_framed: bool


class SocketTaken(Exception):
    """Something that is not a socket of a daemon lies where the socket should be."""


class Transport:
    """The two sockets of a daemon. For the core thread."""

    def __init__(self, socket_path: Path, events_path: Path, max_message_bytes: int) -> None:
        self.socket_path = socket_path
        self.events_path = events_path
        self.counts: Counter[str] = Counter()
        self._context = zmq.Context()
        self.router = self._context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.router.router_mandatory = True
        self.router.maxmsgsize = max_message_bytes * HARD_LIMIT_FACTOR
        self.router.sndhwm = 1000
        self.publisher = self._context.socket(zmq.PUB)
        self.publisher.linger = 0
        self._inodes: dict[Path, int] = {}

    def bind(self) -> None:
        """Listen on both paths; leftovers of a crash go. For the holder of the home's lock alone.

        Raises SocketTaken or zmq.ZMQError.
        """
        for socket, path in ((self.router, self.socket_path), (self.publisher, self.events_path)):
            self._bind(socket, path)

    def allow(self, max_message_bytes: int) -> None:
        """Another limit of messages: connections made from now on obey it (libzmq gives it to a listener for good)."""
        self.router.maxmsgsize = max_message_bytes * HARD_LIMIT_FACTOR
        self._bind_anew(self.router, self.socket_path)

    def rebind_if_lost(self) -> bool:
        """Listen anew where somebody removed or replaced a socket file; True if it had to."""
        lost = False
        for socket, path in ((self.router, self.socket_path), (self.publisher, self.events_path)):
            try:
                if path.lstat().st_ino == self._inodes[path]:
                    continue
            except FileNotFoundError:
                pass
            lost = True
            self._bind_anew(socket, path)
        return lost

    def _bind_anew(self, socket: zmq.Socket[bytes], path: Path) -> None:
        try:
            socket.unbind(f"ipc://{path}")
        except zmq.ZMQError:
            self.counts["unbind_failed"] += 1
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._bind(socket, path)

    def _bind(self, socket: zmq.Socket[bytes], path: Path) -> None:
        clear_socket(path)
        socket.bind(f"ipc://{path}")
        self._inodes[path] = path.lstat().st_ino

    def receive(self) -> list[Incoming]:
        """What has arrived, up to ``BATCH`` messages, without waiting."""
        found: list[Incoming] = []
        while len(found) < BATCH:
            try:
                address = self.router.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            if not self.router.rcvmore:
                self.counts["malformed"] += 1
                continue
            frame = self.router.recv(copy=False)
            extra = False
            while self.router.rcvmore:
                self.router.recv()
                extra = True
            try:
                descriptor = int(frame.get(zmq.SRCFD))
            except zmq.ZMQError:  # from a peer that speaks the first ZMTP, or is only taken for one: nobody of ours
                self.counts["malformed"] += 1
                continue
            found.append(Incoming(address, frame.bytes, descriptor, not extra))
        return found

    def send(self, address: bytes, data: bytes) -> None:
        """Answer; a peer that is gone or does not read loses the reply, and it is counted."""
        try:
            self.router.send_multipart((address, data), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.counts["replies_undeliverable"] += 1

    def publish(self, event: wire.Event) -> None:
        """Tell those who watch; nobody is waited for."""
        self.publisher.send_multipart((event.kind.encode(), wire.encode(event)), zmq.NOBLOCK)

    def close(self, *, leave_paths: bool = False) -> None:
        """Stop listening; the paths go, unless another daemon's sockets may stand there."""
        self.router.close()
        self.publisher.close()
        self._context.term()
        for path in () if leave_paths else (self.socket_path, self.events_path):
            path.unlink(missing_ok=True)


def clear_socket(path: Path) -> None:
    """Remove a socket that a crash left; raises SocketTaken for anything else, and touches it not."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketTaken(f"{path} is not a socket; move it away, then start milkd again")
    os.unlink(path)
