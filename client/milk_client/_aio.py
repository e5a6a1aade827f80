"""`AsyncMilk`: the same methods as coroutines, any number of them at once over one link.

Uses the same links as the blocking face, watched by the event loop, rather than ``zmq.asyncio``: half
its latency and a third of its import.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from time import monotonic
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from . import _calls, _who, wire
from ._calls import Call
from ._link import Link, survives_fork
from ._reach import Where, reach
from ._session import Sent, Session
from .errors import Invalid, MilkError, Timeout

P = ParamSpec("P")
T = TypeVar("T")

_TICK_S = 0.1
"""How often, while answers are due, to look at the link unasked: its file descriptor tells only of edges."""


class Verb(Generic[P, T]):
    """A coroutine method that carries out a `Call`, with the signature and text of what makes the call."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, face: AsyncMilk | None, owner: type[AsyncMilk]) -> Callable[P, Coroutine[Any, Any, T]]:
        make = self._make
        if face is None:
            return make  # type: ignore[return-value]  # for help() and the like
        do = face._do

        @functools.wraps(make)
        async def verb(*args: P.args, **kwargs: P.kwargs) -> T:
            return await do(make(*args, **kwargs))

        return verb


class AsyncMilk:
    """An agent's access to memory from an event loop; see `Milk` for the arguments and what a run is.

    Tasks may call at the same time. A cancelled call may have been done.
    """

    def __init__(
        self,
        session: str | None = None,
        role: str | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        endpoint: str | None = None,
        run_id: str | None = None,
        autostart: bool = True,
        timeout: float = 5.0,
    ) -> None:
        self.timeout = _who.check_timeout(timeout)
        """Seconds a call may take in all."""
        self.parting: MilkError | None = None
        """What kept `close` from telling the daemon; None when it knows."""
        self._session = Session(
            session=_who.find_session(session, os.environ),
            role=_who.find_role(role, os.environ, "primary"),
            run=run_id or "",
        )
        self._where = _who.find_daemon(home, endpoint, autostart, os.environ)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._link: Link | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._due: dict[int, asyncio.Future[wire.Answer | None]] = {}
        self._patient = False
        self._closed = False
        survives_fork(self)

    record = Verb(_calls.record)
    learn = Verb(_calls.learn)
    get = Verb(_calls.get)
    inject = Verb(_calls.inject)
    link = Verb(_calls.link)
    unlink = Verb(_calls.unlink)
    forget = Verb(_calls.forget)
    edit = Verb(_calls.edit)
    pin = Verb(_calls.pin)
    unpin = Verb(_calls.unpin)
    restore = Verb(_calls.restore)
    list = Verb(_calls.list_)
    show = Verb(_calls.show)
    explain = Verb(_calls.explain)
    turn = Verb(_calls.turn)
    flush = Verb(_calls.flush)
    status = Verb(_calls.status)
    conflicts = Verb(_calls.conflicts)
    archive = Verb(_calls.archive)

    @property
    def session(self) -> str:
        """The session it belongs to."""
        return self._session.session

    @property
    def role(self) -> wire.Role:
        """The role it asks in."""
        return self._session.role

    @property
    def run_id(self) -> str:
        """Its run."""
        return self._session.run_id

    async def connect(self) -> Self:
        """Meet the daemon now, not at the first call. Raises NoDaemon, VersionMismatch, Timeout."""
        self._closed = False
        self._here()
        await self._greeted(self._where, monotonic() + self.timeout)
        return self

    async def close(self) -> None:
        """End the run and let go. Never raises and starts no daemon; `parting` says what went wrong."""
        if self._closed:
            return
        self._closed = True
        self._here()
        try:
            if self._session.welcomed is not None:
                self._patient = False
                await self._exchange(wire.Detach(), self._where.only_running())
        except MilkError as error:
            self.parting = error
        finally:
            self._session.welcomed = None
            self._drop()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------ a call

    async def _do(self, call: Call[T]) -> T:
        if self._closed:
            raise _closed()
        self._here()
        answers: list[Any] = []
        request: wire.Request | None = call.request
        while request is not None:
            answers.append(await self._exchange(request, self._where))
            request = call.next_request(answers[-1])
        return call.take(answers)

    async def _exchange(self, request: wire.Request, where: Where) -> wire.Answer:
        """Ask until answered, over as many links as it takes."""
        deadline = monotonic() + self.timeout
        await self._greeted(where, deadline)
        sent = self._session.encode(request)
        unknown = 0
        try:
            link = await self._greeted(where, deadline)
            while True:
                answer = await self._round(link, sent, deadline)
                if answer is not None:
                    settled = self._session.settle(answer, unknown)
                    if settled is not None:
                        return settled
                    unknown += 1
                try:
                    if self._closed and where is self._where:
                        raise _closed()
                    link = await self._greeted(where, deadline)
                except MilkError as error:
                    raise self._session.in_doubt(sent, error) from None
        except Timeout:
            if not self._due:
                self._drop()  # nobody else waits on it, and it may be the link that is at fault
            raise
        finally:
            self._session.release(sent)

    async def _greeted(self, where: Where, deadline: float) -> Link:
        """A link over which the daemon has welcomed this client; one task makes it, others wait."""
        if self._link is not None and self._session.greeted and not self._link.lost():
            return self._link
        try:
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                await self._opening.acquire()
        except TimeoutError:
            raise Timeout(f"Connecting took all of {self.timeout:g} s: nothing was sent.") from None
        try:
            while True:
                if self._link is not None and self._link.lost():
                    self._drop()
                if self._link is None:
                    await self._open(where, deadline)
                link = self._link
                if link is not None and self._session.greeted:
                    return link
                if link is not None:
                    await self._greet(link, deadline)
        finally:
            self._opening.release()

    async def _open(self, where: Where, deadline: float) -> None:
        """Connect in another thread, for it may take a while and start a daemon."""
        loop = asyncio.get_running_loop()
        patient, self._patient = self._patient, False
        reaching = loop.run_in_executor(None, functools.partial(reach, where, deadline, patient=patient))
        try:
            link = await asyncio.shield(reaching)
        except asyncio.CancelledError:
            reaching.add_done_callback(_close_unwanted)
            raise
        self._patient = True
        self._link = link
        loop.add_reader(link.fd, self._drain)

    async def _greet(self, link: Link, deadline: float) -> None:
        sent = self._session.greeting()
        try:
            answer = await self._round(link, sent, deadline)
            if answer is not None:
                self._session.welcome(answer)
        except MilkError:
            self._drop()
            raise
        finally:
            self._session.release(sent)

    async def _round(self, link: Link, sent: Sent, deadline: float) -> wire.Answer | None:
        """Send once (twice when it takes long) and wait; None when the link is lost. Raises Timeout."""
        if link is not self._link or not link.send(sent.data):
            if link is self._link:
                self._drop()
            return None
        due: asyncio.Future[wire.Answer | None] = asyncio.get_running_loop().create_future()
        self._due[sent.id] = due
        self._drain()
        try:
            for until in ((monotonic() + deadline) / 2, deadline):
                done, _ = await asyncio.wait((due,), timeout=max(0.0, until - monotonic()))
                if done:
                    return due.result()
                if link is self._link and until < deadline:
                    link.send(sent.data)
            raise self._session.timed_out(sent, self.timeout)
        finally:
            if self._due.get(sent.id) is due:
                del self._due[sent.id]

    # ------------------------------------------------------------ the link

    def _drain(self) -> None:
        """Hand out every answer that has arrived; notice when the link is gone."""
        link = self._link
        if link is None:
            return
        while (data := link.take()) is not None:
            matched = self._session.match(data)
            if matched is not None:
                due = self._due.get(matched[0])
                if due is not None and not due.done():
                    due.set_result(matched[1])
        if link.lost():
            self._drop()
        elif self._due and self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(_TICK_S, self._look)

    def _look(self) -> None:
        self._tick = None
        self._drain()

    def _drop(self) -> None:
        """Let go of the link; whoever waits on it sends again over the next one."""
        for due in self._due.values():
            if not due.done():
                due.set_result(None)
        link, self._link = self._link, None
        self._session.lost()
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if link is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(link.fd)
            link.close()

    def _here(self) -> None:
        """Belong to the running loop: a link that another one watched is of no use in it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._due.clear()  # its futures are the other loop's
            self._drop()
            self._opening = asyncio.Lock()
            self._loop = loop

    def _forked(self) -> object:
        """In a forked child: a run of its own; the old one, its socket and its loop are the parent's."""
        old = (self._link, self._tick, self._loop, self._due, self._opening)
        self._link = self._tick = self._loop = None
        self._due = {}
        self._session = self._session.of_child()
        self._patient = False
        return old


def _closed() -> Invalid:
    return Invalid("This client was closed.", hint="connect() opens it again.")


def _close_unwanted(reaching: asyncio.Future[Link]) -> None:
    """Nobody waits for this link any longer; if there is none, there is nothing to close."""
    if not reaching.cancelled() and reaching.exception() is None:
        reaching.result().close()
