"""One client's talk with a daemon, without any I/O: numbers, bytes, matching, faults.

Both faces drive it: they open a link, send `greeting`, then what `encode` gave, hand what arrives to
`match` and what matched to `settle`. A link may be lost at any moment; the same bytes are then sent
again over the next one, after a new greeting: the daemon remembers the outcome of a change by (``by``,
``id``), so it acts once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from . import wire
from .errors import BY_CODE, Invalid, MilkError, Timeout, TooLarge, UnknownRun, VersionMismatch

_GREETINGS_A_CALL = 3
"""How often one call may find its run unknown and attach again, before it is an error."""

_OF_A_RUN = (wire.Record, wire.Get, wire.Inject, wire.Turn)
"""What a tool asks in the name of the run it was given or found; the rest only looks, or is a person's."""


def new_id() -> str:
    """An id for a run or client: 128 random bits in hexadecimal."""
    return os.urandom(16).hex()


class Sent(Struct, frozen=True):
    """A request under its number, as bytes: sent again as it is for as long as its fate is unknown."""

    id: int
    data: bytes
    op: str
    change: bool


class Session:
    """The client's side of the protocol; not thread-safe (a face holds its lock).

    ``run`` "" asks for a run of one's own; a run id that was given may be used by several clients, so
    each numbers its requests under an id of its own (``by``). ``tool`` says hello instead of attaching;
    ``named``: its session was asked for, not derived.
    """

    def __init__(
        self, *, session: str, role: wire.Role, run: str = "", tool: bool = False, named: bool = False
    ) -> None:
        self.client_id = f"{run}.{new_id()[:12]}" if run else new_id()
        if len(self.client_id) > 200:
            raise Invalid("The run id is longer than 180 characters.", field="run_id")
        self.run_id = run if run or tool else self.client_id
        self.session = session
        self.role: wire.Role = role
        self.tool = tool
        self._named = named
        self.greeted = False
        """Whether the present link has been greeted."""
        self.welcomed: wire.Welcome | None = None
        """The newest answer to a greeting; None before the first."""
        self._next_id = 1
        self._outstanding: dict[int, Sent] = {}

    # ------------------------------------------------------------ out

    @property
    def max_message_bytes(self) -> int:
        """The daemon's limit of one request in bytes."""
        return self.welcomed.max_message_bytes if self.welcomed else wire.MAX_MESSAGE_BYTES

    def greeting(self) -> Sent:
        """What to send first on a new link, with a number of its own."""
        kind = wire.Hello if self.tool else wire.Attach
        return self._number(
            kind(
                protocol=wire.PROTOCOL,
                version=wire.VERSION,
                run=self.run_id,
                session=self.session,
                role=self.role,
            )
        )

    def encode(self, request: wire.Request) -> Sent:
        """Give ``request`` its number and sender. Raises Invalid (with the field) or TooLarge."""
        if not self.tool:
            request.run = request.run or self.run_id
        else:
            if self.run_id and isinstance(request, _OF_A_RUN):
                request.run = request.run or self.run_id
            if not request.run:
                request.session = request.session or self.session
                request.role = request.role or self.role
        sent = self._number(request)
        if len(sent.data) > self.max_message_bytes:
            self.release(sent)
            raise TooLarge(
                f"The message has {len(sent.data)} bytes; the daemon takes {self.max_message_bytes}.", field="message"
            )
        return sent

    def _number(self, request: wire.Request) -> Sent:
        request.id = self._next_id
        request.by = self.client_id
        request.ack = min(self._outstanding, default=request.id)
        try:
            data = wire.encode(request)
        except (UnicodeEncodeError, TypeError, OverflowError) as error:
            raise _unsendable(request, error) from None
        self._next_id += 1
        sent = Sent(request.id, data, type(request).__name__.lower(), isinstance(request, wire.CHANGES))
        self._outstanding[sent.id] = sent
        return sent

    def release(self, sent: Sent) -> None:
        """Nobody waits for ``sent`` any longer: a late answer belongs to no one, the daemon may forget it."""
        self._outstanding.pop(sent.id, None)

    # ------------------------------------------------------------ in

    def match(self, data: bytes) -> tuple[int, wire.Answer] | None:
        """The number of the request that a message answers, and the answer; None if nobody waits for it."""
        try:
            answer = wire.decode_reply(data)
        except (msgspec.DecodeError, RecursionError) as error:
            number = wire.request_head(data)[0]
            answer = wire.Fault(code=VersionMismatch.code, message=f"The daemon's answer cannot be read ({error}).")
        else:
            number = answer.id
        if number == 0 and isinstance(answer, wire.Fault) and len(self._outstanding) == 1:
            number = next(iter(self._outstanding))
        return (number, answer) if number in self._outstanding else None

    def welcome(self, answer: wire.Answer) -> None:
        """Take the answer to a greeting. Raises the fault's error, or VersionMismatch."""
        if isinstance(answer, wire.Fault):
            raise self._error(answer)
        if not isinstance(answer, wire.Welcome):
            raise VersionMismatch(
                f"The daemon answered a greeting with {type(answer).__name__.lower()!r}; "
                f"milk_client {wire.VERSION} speaks protocol {wire.PROTOCOL}."
            )
        if answer.protocol != wire.PROTOCOL:
            raise _mismatch(answer.protocol, answer.version, "")
        # A tool that was told a session speaks of that one, whatever run it was called below.
        same = not self._named or answer.session in ("", self.session)
        if answer.run and (self.run_id or same):
            self.run_id = answer.run
            self.session = answer.session or self.session
            self.role = self.role or answer.role
        self.welcomed = answer
        self.greeted = True

    def settle(self, answer: wire.Answer, attempt: int) -> wire.Answer | None:
        """The answer; None for "attach again and resend" (``attempt`` counts them from 0). Raises faults."""
        if not isinstance(answer, wire.Fault):
            return answer
        error = self._error(answer)
        if isinstance(error, UnknownRun) and not self.tool and attempt < _GREETINGS_A_CALL:
            self.greeted = False
            return None
        raise error

    def of_child(self) -> Session:
        """The session of a forked child: a run of its own, with numbers of its own."""
        return Session(
            session=self.session,
            role=self.role,
            run=self.run_id if self.tool else "",
            tool=self.tool,
            named=self._named,
        )

    def lost(self) -> None:
        """The link is gone; the next one must be greeted."""
        self.greeted = False

    def timed_out(self, sent: Sent, seconds: float) -> Timeout:
        """The error for a call without an answer."""
        if sent.change:
            return Timeout(f"No answer to {sent.op!r} within {seconds:g} s: it may have been done.")
        return Timeout(f"No answer to {sent.op!r} within {seconds:g} s.")

    def in_doubt(self, sent: Sent, error: MilkError) -> MilkError:
        """``error`` ended a call whose request had gone out: for a change, say that it may have been done."""
        if not sent.change:
            return error
        doubt = f"{error.message} The {sent.op!r} under way may have been done."
        return type(error)(doubt, hint=error.hint, field=error.field)

    def _error(self, fault: wire.Fault) -> MilkError:
        if fault.code == VersionMismatch.code and fault.protocol:
            return _mismatch(fault.protocol, fault.version, fault.hint)
        kind = BY_CODE.get(fault.code, MilkError)
        return kind(fault.message, hint=fault.hint, field=fault.field, candidates=tuple(fault.candidates))


def _mismatch(protocol: int, version: str, hint: str) -> VersionMismatch:
    older = "milkd, then `milkctl restart`" if protocol < wire.PROTOCOL else "the client"
    return VersionMismatch(
        f"milk_client {wire.VERSION} speaks protocol {wire.PROTOCOL}, "
        f"the daemon (milkd {version or 'of unknown version'}) protocol {protocol}.",
        hint=hint or f"Upgrade {older}.",
    )


def _unsendable(request: wire.Request, error: Exception) -> Invalid:
    """The error for a request that has no bytes, naming the field to blame."""
    for name in request.__struct_fields__:
        value = getattr(request, name)
        try:
            wire.encode(value)
        except UnicodeEncodeError:
            return Invalid(f"{name} holds a lone surrogate, which is no text.", field=name)
        except (TypeError, OverflowError) as problem:
            return Invalid(f"{name} cannot be sent: {problem}.", field=name)
    return Invalid(f"The request cannot be sent: {error}.", field="/".join(_names(request)))


def _names(request: wire.Request) -> Iterable[str]:
    return (name for name in request.__struct_fields__ if name not in wire.Request.__struct_fields__)
