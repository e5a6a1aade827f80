"""The blocking faces: `Milk`, an agent's run, and `Tool`, which only asks."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
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

_SLICE_S = 0.1
"""How often a waiting call looks whether the connection still stands."""


class Verb(Generic[P, T]):
    """A method that carries out a `Call`, with the signature and text of the function that makes the call."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, face: _Face | None, owner: type[_Face]) -> Callable[P, T]:
        make = self._make
        if face is None:
            return make  # type: ignore[return-value]  # for help() and the like
        do = face._do

        @functools.wraps(make)
        def verb(*args: P.args, **kwargs: P.kwargs) -> T:
            return do(make(*args, **kwargs))

        return verb


class _Face:
    """One client of one daemon: a session, the link it has at present, and a lock around both."""

    def __init__(self, where: Where, session: Session, timeout: float) -> None:
        self.timeout = _who.check_timeout(timeout)
        """Seconds a call may take in all: waiting for other threads, connecting, starting, answering."""
        self._where = where
        self._session = session
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._patient = False
        self._closed = False
        survives_fork(self)

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
        """Its run; "" for a tool outside any."""
        return self._session.run_id

    def connect(self) -> Self:
        """Meet the daemon now, not at the first call. Raises NoDaemon, VersionMismatch, Timeout."""
        self._closed = False
        with _Turn(self._lock, self.timeout) as deadline:
            self._greeted(deadline)
        return self

    def close(self) -> None:
        """Let go of the daemon; a later call is an error until `connect`. Never raises."""
        self._closed = True
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

    # ------------------------------------------------------------ a call

    def _do(self, call: Call[T]) -> T:
        answers: list[Any] = []
        request: wire.Request | None = call.request
        while request is not None:
            if self._closed:
                raise Invalid("This client was closed.", hint="connect() opens it again.")
            with _Turn(self._lock, self.timeout) as deadline:
                answers.append(self._exchange(request, deadline))
            request = call.next_request(answers[-1])
        return call.take(answers)

    def _exchange(self, request: wire.Request, deadline: float) -> wire.Answer:
        """Ask until answered, over as many links as it takes; the lock is held."""
        self._greeted(deadline)
        sent = self._session.encode(request)
        unknown = 0
        try:
            link = self._greeted(deadline)
            while True:
                answer = self._round(link, sent, deadline)
                if answer is not None:
                    settled = self._session.settle(answer, unknown)
                    if settled is not None:
                        return settled
                    unknown += 1
                link = self._greeted_again(sent, deadline)
        except BaseException as error:
            # Whatever else was on its way over this link shall not be there for the next call.
            if not isinstance(error, MilkError) or isinstance(error, Timeout):
                self._drop()
            raise
        finally:
            self._session.release(sent)

    def _greeted_again(self, sent: Sent, deadline: float) -> Link:
        try:
            return self._greeted(deadline)
        except MilkError as error:
            raise self._session.in_doubt(sent, error) from None

    def _greeted(self, deadline: float) -> Link:
        """A link over which the daemon has welcomed this client."""
        while True:
            if self._link is not None and self._link.lost():
                self._drop()
            if self._link is None:
                patient, self._patient = self._patient, False
                self._link = reach(self._where, deadline, patient=patient)
                self._patient = True
            if self._session.greeted:
                return self._link
            sent = self._session.greeting()
            try:
                answer = self._round(self._link, sent, deadline)
                if answer is not None:
                    self._session.welcome(answer)
            except BaseException:
                self._drop()
                raise
            finally:
                self._session.release(sent)

    def _round(self, link: Link, sent: Sent, deadline: float) -> wire.Answer | None:
        """Send once (twice when it takes long) and wait; None when the link is lost. Raises Timeout."""
        again_at = (monotonic() + deadline) / 2
        if not link.send(sent.data):
            self._drop()
            return None
        while True:
            now = monotonic()
            data = link.wait(min(_SLICE_S, max(0.0, deadline - now)))
            if data is not None:
                matched = self._session.match(data)
                if matched is not None and matched[0] == sent.id:
                    return matched[1]
            elif link.lost():
                self._drop()
                return None
            elif now >= deadline:
                raise self._session.timed_out(sent, self.timeout)
            elif now >= again_at:
                again_at = deadline
                link.send(sent.data)

    def _drop(self) -> None:
        link, self._link = self._link, None
        self._session.lost()
        if link is not None:
            link.close()

    def _forked(self) -> object:
        """In a forked child: a run of its own; the old one and its socket are the parent's."""
        link, self._link = self._link, None
        self._lock = threading.Lock()
        self._session = self._session.of_child()
        self._patient = False
        return link


class _Turn:
    """One thread's turn at the daemon: waits for it within the time that the call has; gives the deadline."""

    def __init__(self, lock: threading.Lock, seconds: float) -> None:
        self._lock = lock
        self._seconds = seconds

    def __enter__(self) -> float:
        deadline = monotonic() + self._seconds
        if not self._lock.acquire(timeout=self._seconds):
            raise Timeout(f"Other threads' calls took all of {self._seconds:g} s: nothing was sent.")
        return deadline

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Milk(_Face):
    """An agent's access to memory. Attaching begins a run, leaving the ``with`` block (or `close`) ends it.

    Safe to use from several threads, and in a forked child (which is a run of its own). ``session``: else
    ``MILK_SESSION``, else the project of the working directory. ``role``: else ``MILK_ROLE``, else
    ``primary``. ``home``: else ``MILK_HOME``, else ``~/.milk``. ``timeout``: seconds a call may take.
    Raises Invalid for a bad argument; connects at `connect`, ``with`` or the first call.
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
        who = Session(
            session=_who.find_session(session, os.environ),
            role=_who.find_role(role, os.environ, "primary"),
            run=run_id or "",
        )
        super().__init__(_who.find_daemon(home, endpoint, autostart, os.environ), who, timeout)
        self.parting: MilkError | None = None
        """What kept `close` from telling the daemon; None when it knows."""

    def close(self) -> None:
        """End the run and let go. Never raises and starts no daemon; `parting` says what went wrong."""
        if self._closed:
            return
        self._closed = True
        try:
            with _Turn(self._lock, self.timeout) as deadline:
                try:
                    if self._session.welcomed is not None:
                        self._where, where = self._where.only_running(), self._where
                        self._patient = False
                        try:
                            self._exchange(wire.Detach(), deadline)
                        finally:
                            self._where = where
                finally:
                    self._session.welcomed = None
                    self._drop()
        except MilkError as error:
            self.parting = error


class Tool(_Face):
    """A tool's access: begins no run, moves no clock, sees all. What `milkctl` uses.

    ``run``: else ``MILK_RUN_ID``, else the live run below which it was called, if the daemon finds one (and
    it is of ``session``, where that is given): it records and recalls in the name of that run. ``role``:
    else ``MILK_ROLE``, else that run's, else "": sees all and writes as ``user``.
    """

    def __init__(
        self,
        session: str | None = None,
        role: str | None = None,
        *,
        run: str | None = None,
        home: str | os.PathLike[str] | None = None,
        endpoint: str | None = None,
        autostart: bool = True,
        timeout: float = 5.0,
    ) -> None:
        who = Session(
            session=_who.find_session(session, os.environ),
            role=_who.find_role(role, os.environ, ""),
            run=run if run is not None else os.environ.get("MILK_RUN_ID", ""),
            tool=True,
            named=session is not None,
        )
        super().__init__(_who.find_daemon(home, endpoint, autostart, os.environ), who, timeout)

    @property
    def welcome(self) -> wire.Welcome:
        """What the daemon said of itself. Raises NoDaemon, VersionMismatch, Timeout."""
        if self._session.welcomed is None:
            self.connect()
        assert self._session.welcomed is not None
        return self._session.welcomed

    def ask(self, request: wire.Request) -> wire.Answer:
        """Any request of the protocol; fields that are set stay as they are. Raises faults as errors."""

        def take(answers: list[wire.Answer]) -> wire.Answer:
            return answers[0]

        return self._do(Call(request, wire.Reply, take))

    consolidate = Verb(_calls.consolidate)
    begin_run = Verb(_calls.begin_run)
    end_run = Verb(_calls.end_run)
    sessions = Verb(_calls.sessions)
    rename_session = Verb(_calls.rename_session)
    merge_session = Verb(_calls.merge_session)
    export = Verb(_calls.export)
    config = Verb(_calls.config)
    shutdown = Verb(_calls.shutdown)
