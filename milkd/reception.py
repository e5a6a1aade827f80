"""What a message asks and who asks it: decoding, and the processes behind a connection.

What is wrong with a message becomes its answer, and is counted; it changes nothing.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from milk_client import wire
from milk_client.errors import Invalid, MilkError, TooLarge, VersionMismatch
from msgspec import Struct

from milkd import liveness
from milkd.rules.percept import Now
from milkd.service import Peer, fault
from milkd.settings import Settings
from milkd.transport import Incoming

_PEERS_KEPT = 4096


class Asked(Struct):
    """A request of a batch: who asked, what, when, and the answer so far."""

    address: bytes
    request: wire.Ask | None
    answer: wire.Answer | None
    peer: Peer
    now: Now


class Reception:
    """Reads messages. ``faults`` counts what is wrong with them, by code."""

    def __init__(self, settings: Settings, version: str, faults: Counter[str]) -> None:
        self._settings = settings
        self._version = version
        self._faults = faults
        self._peers: dict[bytes, tuple[int, Peer]] = {}

    def read(self, message: Incoming, now: Now) -> Asked:
        """Decode one message; what is wrong with it becomes its answer, and is counted."""
        asked = Asked(message.address, None, None, Peer(), now)
        try:
            asked.request = self._decode(message)
        except MilkError as wrong:
            error = wrong
            number, protocol = wire.request_head(message.data)
            if protocol and protocol not in wire.SPOKEN:
                error = VersionMismatch(
                    f"the client speaks protocol {protocol}, this daemon {wire.PROTOCOL} (milkd {self._version})"
                )
            self._faults[error.code] += 1
            asked.answer = fault(error, number, self._version)
            return asked
        asked.peer = self._peer(message, asked.request)
        return asked

    def _decode(self, message: Incoming) -> wire.Ask:
        limit = self._settings.config.daemon.max_message_bytes
        if not message.well_framed:
            raise Invalid("message: has more than one part; send one msgpack map")
        if len(message.data) > limit:
            raise TooLarge(f"message: has {len(message.data)} bytes; at most {limit}", field="message")
        try:
            return wire.decode_request(message.data)
        except msgspec.ValidationError as error:
            text, _, where = str(error).partition(" - at `$")
            field = where.strip("`.").split("[")[0]
            raise Invalid(f"{field or 'request'}: {text}", field=field) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Invalid("message: is not a msgpack map of this protocol", field="message") from None

    def _peer(self, message: Incoming, request: wire.Ask) -> Peer:
        """The processes behind a connection, looked up once for each (M5)."""
        if isinstance(request, wire.Attach) and request.pid:
            return Peer(liveness.chain(request.pid))
        known = self._peers.get(message.address)
        if known is None or known[0] != message.descriptor:
            pid = liveness.peer_pid(message.descriptor)
            known = (message.descriptor, Peer(liveness.chain(pid) if pid else ()))
            while len(self._peers) >= _PEERS_KEPT:
                del self._peers[next(iter(self._peers))]
            self._peers[message.address] = known
        return known[1]
