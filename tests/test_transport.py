"""The sockets of a daemon: how large a message may be that they read at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from milkd.transport import HARD_LIMIT_FACTOR, Transport

PATIENCE_MS = 5000


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def arrives(transport: Transport, context: zmq.Context[zmq.Socket[bytes]], size: int) -> bool:
    """Whether a message of that size comes through, on a connection of its own; a refused one is cut off."""
    with context.socket(zmq.DEALER) as client:
        monitor = client.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            client.connect(f"ipc://{transport.socket_path}")
            client.send(bytes(size))
            poller = zmq.Poller()
            poller.register(transport.router, zmq.POLLIN)
            poller.register(monitor, zmq.POLLIN)
            ready = dict(poller.poll(PATIENCE_MS))
            assert ready, "neither read nor cut off"
            return transport.router in ready and [len(m.data) for m in transport.receive()] == [size]
        finally:
            client.disable_monitor()
            monitor.close()


def test_another_limit_of_messages_holds_for_connections_made_from_then_on(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    transport = Transport(tmp_path / "d.sock", tmp_path / "e.sock", 4096)
    transport.bind()
    try:
        edge = 4096 * HARD_LIMIT_FACTOR
        assert arrives(transport, context, edge) and not arrives(transport, context, edge + 1)
        transport.allow(8192)
        assert arrives(transport, context, 2 * edge) and not arrives(transport, context, 2 * edge + 1)
        transport.allow(4096)
        assert arrives(transport, context, edge) and not arrives(transport, context, edge + 1)
        assert not transport.rebind_if_lost(), "it knows its own socket"
    finally:
        transport.close()
