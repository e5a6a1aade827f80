"""The daemon: the batch loop that joins the door with the sockets, the disk and the clocks.

One turn of the loop: take what has arrived, apply all of it with a way back, put the effects on disk with
one sync, then answer and tell. Nothing leaves before that sync, so nobody reads what a crash could lose.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import zmq
from milk_client import wire
from milk_client.errors import Invalid, MilkError, Overloaded, StorageFull
from msgspec import Struct
from msgspec.structs import replace

from milkd import host, liveness, registry, runs
from milkd.clocks import Process
from milkd.config import Config, shown
from milkd.edits import Edited
from milkd.keeper import SMALL, Keeper, SnapshotDone
from milkd.reception import Asked, Reception
from milkd.rules.percept import GLOBAL, Now, stamp
from milkd.service import Checkpoint, Identity, Internal, Peer, Retune, Service, fault
from milkd.settings import Settings
from milkd.sidework import Poke, SideWork
from milkd.store import Store
from milkd.transport import Incoming, Transport

log = logging.getLogger("milkd")

_NOTES_KEPT = 20
_LAST_SETS = 3
# macOS: CLOCK_MONOTONIC there goes on in suspend, CLOCK_UPTIME_RAW does not.
_MONO = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class _Waiting(Struct):
    """An answer that leaves when the files hold a generation."""

    generation: int
    address: bytes
    answer: wire.Answer
    request: wire.Ask


def read_clocks() -> Now:
    """The three clocks of this moment; the one place that reads them."""
    return Now(time.time(), time.clock_gettime(_MONO), time.clock_gettime(_BOOT))  # noqa: TID251


class Daemon:
    """A daemon on one home; `run` returns when it has stopped cleanly."""

    def __init__(
        self, settings: Settings, lock: host.Lock, version: str, log_as: Callable[[Config], None] = lambda _: None
    ) -> None:
        """``log_as`` sets up the log as a config says."""
        self.settings = settings
        self.lock = lock
        self.home = settings.home
        self.version = version
        self.log_as = log_as
        self.started = read_clocks()
        self.mailbox = host.Mailbox()
        config = settings.config
        self.store = Store(config.memory)
        limit = config.daemon.max_message_bytes
        identity = Identity(
            version, os.getpid(), str(self.home.root), uuid.uuid4().hex, f"ipc://{self.home.events}", limit
        )
        self.service = Service(self.store, identity, lambda: str(uuid.uuid4()))
        post = self.mailbox.post
        self.keeper = Keeper(self.home, self.store, post, config.daemon.journal_max_mb << 20, lock.check_place)
        self.transport = Transport(self.home.socket, self.home.events, limit)
        self.faults: Counter[str] = Counter()
        self.reception = Reception(settings, version, self.faults)
        self.loop_max_ms = 0.0
        self._waiting: list[_Waiting] = []
        self._postponed: list[Edited | Retune] = []
        """Edits by hand and knobs that could not be written down: they wait for room on the disk."""
        self._watched: frozenset[Process] = frozenset()
        self._told_health: dict[str, str] = {}
        self._stopping = False
        self._lost_home = False
        self._died = ""
        self._side = SideWork(settings, post, lambda: self._watched, self.keeper.look_at_all, self._side_died)

    # ------------------------------------------------------------ life

    def run(self, after_load: Callable[[], None]) -> int:
        """Recover, listen, serve until told to stop, put everything on disk. Returns the exit status."""
        now = read_clocks()
        loaded = self.keeper.load(_date(now), now.boot)
        after_load()
        for problem in loaded.problems:
            log.warning("%s", problem)
        for note in loaded.notes:
            log.info("%s", note)
        self.transport.bind()
        host.write_endpoint(self.home, self.version)
        self._watched = runs.watched(self.store)
        self._side.start()
        log.info("listening on %s (pid %d, milkd %s)", self.home.socket, os.getpid(), self.version)
        host.notify("READY=1\nSTATUS=serving")
        self._batch([], [Retune(self.settings.config.memory)])  # it may be another one than before the stop
        self.keeper.want_files(now.boot)
        try:
            with host.Signals(stop=self._ask_stop, reload=lambda: self.mailbox.post(Poke("config"))):
                self._serve()
        finally:
            self._stop()
        if self._died:
            log.error("stopped, because %s", self._died)
            return 1
        if "files" in self.keeper.health:
            log.error("stopped, but %s", self.keeper.health["files"])
            return 1
        log.info("stopped")
        return 0

    def _ask_stop(self) -> None:
        self._stopping = True
        self.mailbox.post(Poke("stop"))

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self.transport.router, zmq.POLLIN)
        poller.register(self.mailbox.descriptor, zmq.POLLIN)
        while not self._stopping:
            poller.poll(1000)
            self._turn()
        if not self._lost_home:
            self._turn()  # what was read is answered

    def _stop(self) -> None:
        """Stop reading, final snapshot, close, in this order. A home that is lost is not written to any more."""
        host.notify("STOPPING=1")
        self._side.stop()
        self.keeper.end_writer()
        if not self._lost_home:
            self._write_last()
        self.keeper.close()
        self._announce("stopping")
        self.transport.close(leave_paths=self._lost_home)
        if not self._lost_home:
            self.home.endpoint.unlink(missing_ok=True)
        self.mailbox.close()

    def _write_last(self) -> None:
        """What still waits is applied, and the files hold all of it."""
        now = read_clocks()
        pending: list[Internal] = [one for item in self.mailbox.take() for one in self._poked(item)]
        pending.append(Checkpoint())
        for _ in range(_LAST_SETS):  # an edit by hand that a set met on its way belongs into another
            self._batch([], pending)
            done, edits = self.keeper.write_last(_date(now), now.boot)
            self._release(done)
            pending = list(edits)
            if not pending:
                break

    def _side_died(self, error: BaseException) -> None:
        self._died = f"the thread of jobs and watching failed: {type(error).__name__}: {error}"
        self._ask_stop()

    # ------------------------------------------------------------ one turn of the loop

    def _turn(self) -> None:
        begin = time.perf_counter()
        synced_before = self.keeper.sync_s
        internal: list[Internal] = []
        for item in self.mailbox.take():
            internal += self._poked(item)
        self._batch(self.transport.receive(), internal)
        held_ms = (time.perf_counter() - begin - (self.keeper.sync_s - synced_before)) * 1000
        self.loop_max_ms = max(self.loop_max_ms, held_ms)

    def _batch(self, arrived: list[Incoming], internal: list[Internal]) -> None:
        """Apply all, sync once, answer (design: the batch loop)."""
        mark = self.store.mark()
        for request in internal:
            self._apply_internal(request)
        asked = [self.reception.read(message, read_clocks()) for message in arrived]
        for one in asked:
            if one.request is not None:
                one.answer = self._apply(one.request, one.peer, one.now)
        if self.store.must_sync() or any(isinstance(request, Checkpoint) for request in internal):
            try:
                self.keeper.commit()
            except OSError as error:
                self.store.rollback(mark)
                self.keeper.health["journal"] = _disk_trouble(error)
                self.faults["storage_full"] += 1
                self._postponed += [request for request in internal if isinstance(request, Edited | Retune)]
                self._answer_without_disk(asked)
        self._watched = runs.watched(self.store)
        self._tell()
        for one in asked:
            if one.answer is not None:
                self._answer(one)

    def _answer_without_disk(self, asked: list[Asked]) -> None:
        """The batch was taken back: its changes fail, the rest is asked again of what is on disk."""
        for one in asked:
            if one.request is None:
                continue
            if isinstance(one.request, wire.CHANGES):
                error = StorageFull(f"the change could not be written: {self.keeper.health['journal']}")
                one.answer = fault(error, one.request.id, self.version)
            else:
                one.answer = self._apply(one.request, one.peer, one.now)

    def _announce(self, kind: wire.EventKind, detail: str = "") -> None:
        """Tell those who watch of the daemon itself."""
        at = stamp(read_clocks().wall)
        self.transport.publish(wire.Event(kind=kind, at=at, number=self.store.event, detail=detail))

    def _tell(self) -> None:
        if self.keeper.health != self._told_health:
            self._told_health = dict(self.keeper.health)
            self._announce("health", "; ".join(self._told_health.values()) or "good again")
        events, self.store.events = self.store.events, []
        for event in events:
            self.transport.publish(event)
            log.debug(
                "%s %s %s %s",
                event.kind,
                event.session,
                event.percept,
                event.detail if event.kind == "pass" else "",
            )

    # ------------------------------------------------------------ requests

    def _apply(self, request: wire.Ask, peer: Peer, now: Now) -> wire.Answer:
        begin = time.perf_counter()
        try:
            if isinstance(request, wire.Attach) and request.pid and not peer.chain:
                raise Invalid(f"pid: there is no process {request.pid}", field="pid")
            answer = self._fill(request, self.service.apply(request, now, peer), now)
        except MilkError as error:
            self.faults[error.code] += 1
            return fault(error, request.id, self.version)
        except Exception as error:
            # A fault of ours: taken back by the door, told without what was in the request.
            log.exception("a %s request failed", type(request).__name__.lower())
            self.faults["internal"] += 1
            told = MilkError(f"milkd failed inside ({type(error).__name__}); nothing was changed")
            return fault(told, request.id, self.version)
        if isinstance(answer, wire.Passed):
            spent_ms = (time.perf_counter() - begin) * 1000
            answer = replace(answer, report=replace(answer.report, duration_ms=spent_ms))
        return answer

    def _apply_internal(self, request: Internal) -> None:
        try:
            self.service.apply(request, read_clocks(), Peer())
            if isinstance(request, Edited):
                self.keeper.notes.append(f"an edit of {request.scope}.json by hand was taken in")
        except Exception as error:
            why = error.message if isinstance(error, MilkError) else f"failed inside ({type(error).__name__})"
            if not isinstance(error, MilkError):
                log.exception("internal %s failed", type(request).__name__.lower())
                self.faults["internal"] += 1
            if isinstance(request, Edited):
                self.keeper.refuse(f"{request.scope}.json", request.data, _date(read_clocks()), why)

    def _answer(self, one: Asked) -> None:
        """Send an answer, now or when the files hold what it says."""
        request, answer = one.request, one.answer
        assert answer is not None
        if request is None or isinstance(answer, wire.Fault):
            self.transport.send(one.address, wire.encode(answer))
            return
        generation = self._files_before(request, answer, one.now)
        if not generation:
            self.transport.send(one.address, wire.encode(answer))
        elif sum(1 for w in self._waiting if w.address == one.address) >= self.settings.config.daemon.in_flight_max:
            full = Overloaded(f"{self.settings.config.daemon.in_flight_max} requests of this client wait already")
            self.transport.send(one.address, wire.encode(fault(full, request.id, self.version)))
        else:
            self._waiting.append(_Waiting(generation, one.address, answer, request))
        if isinstance(request, wire.Shutdown):
            self._ask_stop()

    def _files_before(self, request: wire.Ask, answer: wire.Answer, now: Now) -> int:
        """The generation of the files that must be on disk before this answer; 0 = none."""
        match request:
            case wire.Forget() | wire.RenameSession() | wire.MergeSession():
                return self.keeper.want_scrub(now.boot)
            case wire.Flush():
                return self.keeper.want_files(now.boot)
            case wire.Turn() | wire.Consolidate() | wire.Detach() if isinstance(answer, wire.Passed):
                scopes = [self.store.scopes.get(name) for name in (GLOBAL, answer.report.session)]
                if sum(len(scope.living) for scope in scopes if scope) <= SMALL:
                    return self.keeper.want_files(now.boot)
        return 0

    def _fill(self, request: wire.Ask, answer: wire.Answer, now: Now) -> wire.Answer:
        """What only the roof knows of an answer."""
        if isinstance(answer, wire.Statused):
            return self._status(answer, now)
        if isinstance(request, wire.ShowConfig):
            config = self.settings.config
            return wire.ConfigShown(
                id=request.id,
                values=shown(config),
                source=str(self.settings.source or "defaults"),
                warnings=list(config.warnings),
                rejected=self.settings.rejected,
            )
        return answer

    def _status(self, core: wire.Statused, now: Now) -> wire.Statused:
        """What the core knows of itself, and what only the roof knows: files, processes, faults."""
        keeper = self.keeper
        health = [*core.health, *keeper.health.values()]
        if self.settings.rejected:
            health.append(f"the config file is not in force: {self.settings.rejected}")
        lying = registry.lying_about(self.home.memory)
        return replace(
            core,
            started_at=stamp(self.started.wall),
            uptime_s=now.boot - self.started.boot,
            health=health,
            notes=[*core.notes, *keeper.notes[-_NOTES_KEPT:], *self.settings.config.warnings, *lying],
            runs=[replace(line, command=liveness.command(line.pid)) for line in core.runs],
            counts={**core.counts, "faults": dict(self.faults), "messages": dict(self.transport.counts)},
            journal=keeper.figures(),
            files=registry.sizes(self.home.memory),
            process={**liveness.own_cost(), "loop_max_ms": self.loop_max_ms, "sync_max_ms": keeper.sync_max_ms},
        )

    # ------------------------------------------------------------ what others hand in

    def _poked(self, item: Any) -> list[Internal]:
        now = read_clocks()
        if isinstance(item, SnapshotDone):
            edits = self.keeper.done(item, _date(now), now.boot)
            self._release(item)
            return list(edits)
        if not isinstance(item, Poke):
            return [item]
        match item.what:
            case "config":
                return self._reload()
            case "health":
                self._note_health(item.text)
            case "snapshot":
                self.keeper.want_files(now.boot)
            case "look":
                return list(self._look(item.names, now))
            case "sweep":
                if not self._holds_home():
                    return []
                if self.transport.rebind_if_lost():
                    log.warning("the socket file was gone or replaced: listening anew on %s", self.home.socket)
                    host.write_endpoint(self.home, self.version)
                host.notify("WATCHDOG=1")
                postponed, self._postponed = self._postponed, []
                return [*postponed, *self._look(tuple(self.keeper.unreadable()), now)]
        return []

    def _holds_home(self) -> bool:
        """Look whether the home is still ours; without it the daemon stops, and leaves what stands there alone."""
        try:
            self.lock.check()
        except OSError as error:
            self._died = f"{self.home.root} is not the home any more: {error.strerror}"
            self._lost_home = True
            self._ask_stop()
        return not self._lost_home

    def _look(self, names: tuple[str, ...], now: Now) -> list[Edited]:
        edits = self.keeper.look(names, _date(now), now.boot)
        if edits or (names and self.store.dirty):
            self.mailbox.post(Poke("snapshot"))
        return edits

    def _note_health(self, text: str) -> None:
        if text:
            self.keeper.health["watch"] = text
        else:
            self.keeper.health.pop("watch", None)

    def _release(self, done: SnapshotDone) -> None:
        """The files are written (or not): answers that waited for them leave."""
        # After a failure nobody knows when the next set comes: all hear of it now.
        ready = [w for w in self._waiting if done.error or w.generation <= done.cut.generation]
        self._waiting = [w for w in self._waiting if w not in ready]
        for waiting in ready:
            answer = waiting.answer
            if done.error is not None and isinstance(waiting.request, wire.Forget | wire.Flush):
                error = StorageFull(
                    f"{self.keeper.health.get('files', 'the files could not be written')}; "
                    "what was to be forgotten or written is still on disk until then"
                )
                answer = fault(error, waiting.request.id, self.version)
            self.transport.send(waiting.address, wire.encode(answer))

    def _reload(self) -> list[Internal]:
        """Look at the config anew; a bad one leaves the old in force and says so (section 6)."""
        told, changed = self.settings.reload()
        if told:
            log.log(logging.WARNING if self.settings.rejected else logging.INFO, "config %s", told)
            self._announce("config", told)
        if not changed:
            return []
        config = self.settings.config
        self.log_as(config)
        limit = config.daemon.max_message_bytes
        if limit != self.service.identity.max_message_bytes:
            self.service.identity = replace(self.service.identity, max_message_bytes=limit)
            self.transport.allow(limit)
        for warning in config.warnings:
            log.warning("%s", warning)
        self.keeper.journal_max_bytes = config.daemon.journal_max_mb << 20
        self._side.retune()
        return [Retune(config.memory)]


def _date(now: Now) -> str:
    return stamp(now.wall)[:19].replace(":", "").replace("-", "")


def _disk_trouble(error: OSError) -> str:
    return f"the journal cannot be written ({error.strerror}): changes are refused until there is room"
