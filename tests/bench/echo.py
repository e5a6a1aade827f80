"""What any daemon on this machine pays: a bare pyzmq ROUTER that sends back what it gets, a sync between or not.

Run as a program: ``echo.py ENDPOINT FILE``. A request that begins with ``s`` is written to FILE and synced first.
"""

from __future__ import annotations

import os
import sys

import zmq


def main(endpoint: str, path: str) -> None:
    """Serve until the request ``q``."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    room = 64 << 20
    os.posix_fallocate(file, 0, room)
    os.fsync(file)
    at = 0
    socket = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(endpoint)
    while True:
        peer, body = socket.recv_multipart()
        if body == b"q":
            return
        if body[:1] == b"s":
            at = 0 if at + len(body) > room else at
            os.pwrite(file, body, at)
            at += len(body)
            os.fdatasync(file)
        socket.send_multipart([peer, body])


if __name__ == "__main__":
    main(*sys.argv[1:])
