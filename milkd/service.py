"""The one door: ``apply(request, now, peer)`` -> reply (design: the core is a deterministic state machine).

Everything that changes memory enters here, in order: a client's request, a sweep of the processes, a hand
edit of a file, other knobs. No I/O, no clock, no chance that was not handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from milk_client import wire
from milk_client.errors import Invalid, MilkError, NotFound, Overloaded, UnknownRun, VersionMismatch
from msgspec import Struct
from msgspec.structs import replace

from milkd import reading, recording, runs, sessions
from milkd.cells import Remembered
from milkd.clocks import Process, Run
from milkd.config import Memory
from milkd.consolidation import prune, run_pass
from milkd.edits import Edited, merge_edit
from milkd.keeping import Change, connect, erase
from milkd.recording import Caller, Recording
from milkd.reporting import Identity, archived_page, export_page, status
from milkd.rules.percept import GLOBAL, Held, Now, edge_key, stamp
from milkd.runs import Sweep
from milkd.shapes import archived_entry, engram_now
from milkd.store import Store

MAX_TEXT_BYTES = 100_000
"""Of a query, prompt or pattern, in UTF-8: more is a mistake, and would hold the loop."""


UNACKNOWLEDGED_MAX = 1024
"""Outcomes kept for one client; more come only of one that acknowledges nothing."""


class Peer(Struct, frozen=True):
    """The process behind a request: itself and its ancestors, nearest first (M5). Empty = unknown."""

    chain: tuple[Process, ...] = ()


class Retune(Struct, frozen=True):
    """Other knobs are in force from now on."""

    knobs: Memory


class Checkpoint(Struct, frozen=True):
    """Write down what only flows: clocks, use marks, when each run was heard (M7)."""


class ExpireArchive(Struct, frozen=True):
    """Drop what the archive keeps no longer (M4)."""


Internal = Sweep | Edited | Retune | Checkpoint | ExpireArchive


def _op(request: wire.Request) -> str:
    return str(request.__struct_config__.tag)


class Service:
    """The door and what stands behind it."""

    def __init__(self, store: Store, identity: Identity, new_id: Callable[[], str]) -> None:
        self.store = store
        self.identity = identity
        self.new_id = new_id

    # ------------------------------------------------------------ the door

    def apply(self, request: wire.Ask | Internal, now: Now, peer: Peer) -> wire.Answer:
        """Do one request. Raises MilkError, with everything taken back that it had changed."""
        if not isinstance(request, wire.Request):
            with self._whole():
                return self._internal(request, now)
        with self._whole():  # a request that is refused does not take back that silence ended a run before it
            self._end_the_silent(request, now, peer)
        with self._whole():
            return self._asked(request, now, peer)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """All of it or nothing."""
        mark = self.store.mark()
        try:
            yield
        except BaseException:
            self.store.rollback(mark)
            raise

    def _end_the_silent(self, request: wire.Ask, now: Now, peer: Peer) -> None:
        clocks = self.store.clocks
        known = clocks.runs.get(request.run)
        same = [r for r in clocks.live_runs() if peer.chain and r.process == peer.chain[0]]
        runs.expire(self.store, now, [*same, *([known] if known and known.live else [])], self.new_id)

    def _internal(self, request: Internal, now: Now) -> wire.Answer:
        match request:
            case Sweep():
                runs.sweep(self.store, request, now, self.new_id)
            case Edited():
                merge_edit(Change(self.store, now, self.new_id), request)
            case Retune():
                if request.knobs != self.store.knobs:
                    self._retune(Change(self.store, now, self.new_id), request.knobs)
            case Checkpoint():
                self.store.note_heard()
                runs.sample_pace(self.store, now)
            case ExpireArchive():
                runs.expire_archive(self.store, now)
        return wire.Done()

    def _retune(self, change: Change, knobs: Memory) -> None:
        """Other knobs are in force; what has faded under the old ones does not come back by them (M9)."""
        for scope in list(self.store.scopes.values()):
            if not scope.is_global:
                prune(change, scope)
        self.store.retune(knobs)

    def _asked(self, request: wire.Ask, now: Now, peer: Peer) -> wire.Answer:
        store = self.store
        prior = self._prior(request, now)
        if prior is not None:
            return prior
        match request:
            case wire.Hello():
                return self._hello(request, peer)
            case wire.Attach():
                return self._attach(request, now, peer)
        caller = self._caller(request, now, peer)
        change = Change(store, now, self.new_id, caller.run)
        answer = self._answer(request, caller, change)
        if isinstance(request, wire.CHANGES) and request.by and request.id:
            self._remember(request, answer, now)
        return replace(answer, id=request.id)

    def _answer(self, ask: wire.Ask, caller: Caller, change: Change) -> wire.Answer:
        match ask:
            case wire.Record():
                self._heard(caller, change, "last_recorded")
                return self._recorded(recording.record(change, caller, ask), change.now)
            case wire.Get():
                return self._get(ask, caller, change)
            case wire.Inject():
                return self._inject(ask, caller, change)
            case wire.Turn():
                return self._turn(caller, change)
            case wire.Consolidate():
                return self._consolidate(ask, caller, change)
            case wire.Detach():
                return self._detach(caller, change.now)
            case wire.Forget():
                return self._forget(ask, caller, change)
            case wire.Link():
                return self._link(ask, caller, change)
            case wire.Unlink():
                return self._unlink(ask, caller, change)
            case wire.Edit():
                return self._changed(recording.edit(change, caller, ask.target, ask.content), change.now)
            case wire.Pin():
                return self._changed(recording.pin(change, caller, ask.target), change.now)
            case wire.Unpin():
                return self._changed(recording.unpin(change, caller, ask.target), change.now)
            case wire.Restore():
                return self._changed(recording.restore(change, caller, ask.target), change.now)
            case wire.RenameSession():
                sessions.rename(change, ask.old, ask.new)
                return wire.Done()
            case wire.MergeSession():
                sessions.merge(change, ask.source, ask.into)
                return wire.Done()
            case _:
                return self._look(ask, caller, change.now)

    def _look(self, ask: wire.Ask, caller: Caller, now: Now) -> wire.Answer:
        """Requests that start no run, move no clock and are no use."""
        store = self.store
        match ask:
            case wire.List():
                return self._list(ask, caller, now)
            case wire.Show():
                return self._show(ask, caller, now)
            case wire.Explain():
                held, reason = self._found(ask.target, caller)
                pace = _pace(store, held.scope, now)
                return reading.explain(store, held, now, pace, reason)
            case wire.Status():
                return status(store, self.identity, now)
            case wire.ArchiveList():
                return archived_page(store, caller, ask)
            case wire.Conflicts():
                return self._conflicts(caller, now)
            case wire.Sessions():
                return wire.SessionList(sessions=sessions.lines(store))
            case wire.Export():
                return export_page(store, caller, ask)
            case _:  # flush, showconfig, shutdown: the roof's; applied so that they stand in order
                return wire.Done()

    # ------------------------------------------------------------ retries

    def _prior(self, request: wire.Ask, now: Now) -> wire.Answer | None:
        """The outcome of a change that was done before and is asked again: it acts once."""
        if not (isinstance(request, wire.CHANGES) and request.by and request.id):
            return None
        mine = self.store.replies.get(request.by, {})
        kept = mine.get(request.id)
        if kept is None:
            if any(request.id < other.ack for other in mine.values()):
                raise Invalid("id: this request was acknowledged already; a late copy is not done", field="id")
            if len(mine) >= UNACKNOWLEDGED_MAX and sum(n >= request.ack for n in mine) >= UNACKNOWLEDGED_MAX:
                raise Overloaded(
                    f"{UNACKNOWLEDGED_MAX} changes of this client are not acknowledged",
                    hint="Send `ack` with each request: the number below which all have been answered.",
                )
            return None
        if kept.op not in ("", _op(request)):
            raise Invalid(f"id: was used for another request ({kept.op})", field="id")
        answer: wire.Answer
        if isinstance(request, wire.Record):
            answer = self._recorded(msgspec.msgpack.decode(kept.outcome, type=Recording), now)
        elif isinstance(request, wire.Edit | wire.Pin | wire.Unpin | wire.Restore):
            held, _ = self._anywhere(msgspec.msgpack.decode(kept.outcome, type=str))
            answer = self._changed(held, now)
        else:
            answer = wire.decode_reply(kept.outcome)
        return replace(answer, id=request.id)

    def _remember(self, request: wire.Ask, answer: wire.Answer, now: Now) -> None:
        """Keep a change's outcome, ids and numbers only, until the client acknowledges it."""
        match answer:
            case wire.Recorded():
                near = tuple((n.percept.id, n.reason) for n in answer.near)
                kept: Any = Recording(answer.percept.id, answer.outcome, near, answer.superseded, answer.conflicts_with)
            case wire.Changed():
                kept = answer.percept.id
            case _:
                kept = answer
        value = Remembered(wire.encode(kept), request.ack, now.boot, _op(request))
        # Together with its change, so that neither is on disk without the other.
        put = self.store.put if self.store.must_sync() else self.store.put_lazy
        put("reply", f"{request.by} {request.id}", value)

    # ------------------------------------------------------------ who asks

    def _hello(self, ask: wire.Hello, peer: Peer) -> wire.Welcome:
        check_protocol(ask.protocol, ask.version, self.identity.version)
        clocks = self.store.clocks
        run = clocks.runs.get(ask.run) if ask.run else clocks.run_among(peer.chain)
        if ask.run and run is None:
            raise NotFound(
                f"run: there is no run {ask.run!r} (any more)",
                field="run",
                hint="Unset MILK_RUN_ID, or begin a run: `export MILK_RUN_ID=$(milkctl run begin)`.",
            )
        return self._welcome(ask.id, run)

    def _attach(self, ask: wire.Attach, now: Now, peer: Peer) -> wire.Welcome:
        check_protocol(ask.protocol, ask.version, self.identity.version)
        run_id = ask.run or ask.by
        if not run_id:
            raise Invalid("run: is empty", field="run")
        session = sessions.checked(self.store, ask.session)
        role = ask.role or "primary"
        chain = peer.chain or (Process(0, 0, f"client {ask.by}"),)
        run = runs.begin(self.store, run_id, session, role, chain, now)
        return self._welcome(ask.id, run)

    def _welcome(self, number: int, run: Run | None) -> wire.Welcome:
        me = self.identity
        return wire.Welcome(
            id=number,
            protocol=wire.PROTOCOL,
            version=me.version,
            pid=me.pid,
            home=me.home,
            boot=me.boot,
            events=me.events,
            run=run.id if run else "",
            session=run.session if run else "",
            role=run.role if run else "",  # type: ignore[arg-type]
            max_content_bytes=self.store.knobs.max_content_bytes,
            max_message_bytes=me.max_message_bytes,
        )

    def _caller(self, ask: wire.Ask, now: Now, peer: Peer) -> Caller:
        if not ask.run:
            session = sessions.checked(self.store, ask.session or "default")
            return Caller(ask.by, session, ask.role)
        run = self.store.clocks.runs.get(ask.run)
        if run is None:
            raise UnknownRun(f"run: {ask.run[:8]} is not known (any more)", field="run")
        if run.live:
            self.store.clocks.hear(run, now)
        else:
            run = runs.again(self.store, run, peer.chain, now)
        return Caller(ask.by, run.session, run.role, run)

    def _heard(self, caller: Caller, change: Change, what: str) -> None:
        """Note when a session and role last recorded, recalled or turned; wakes a run's sitting (M13)."""
        key = f"{caller.session} {caller.role}"
        line = self.store.seen.get(key) or wire.SeenLine(session=caller.session, role=caller.role or "user")
        self.store.put_lazy("seen", key, replace(line, **{what: change.stamp}))
        if caller.run is not None:
            runs.mark_active(self.store, caller.run)

    # ------------------------------------------------------------ answers

    def _anywhere(self, percept_id: str) -> tuple[Held, str]:
        """A percept that lives or is archived (with the reason); raises NotFound."""
        store = self.store
        percept_id = store.now_called(percept_id)
        held = store.percepts.get(percept_id)
        if held is not None:
            return held, "" if store.lives(held) else "pruned"
        gone = store.archive.get(percept_id)
        if gone is None:
            raise NotFound(f"id: #{percept_id[:8]} is no more")
        return gone.held, gone.reason

    def _found(self, given: str, caller: Caller) -> tuple[Held, str]:
        held, reason = self._anywhere(self.store.resolve(given, "target"))
        recording.check_visible(caller, held, "target")
        return held, reason

    def _seen(self, held: Held, now: Now) -> wire.Percept:
        return reading.seen(self.store, held, now.wall)

    def _changed(self, held: Held, now: Now) -> wire.Changed:
        return wire.Changed(percept=self._seen(held, now))

    def _recorded(self, done: Recording, now: Now) -> wire.Recorded:
        near = []
        for percept_id, reason in done.near:
            held = self.store.percepts.get(percept_id)
            if held is not None:
                near.append(wire.Near(self._seen(held, now), reason))
        return wire.Recorded(
            percept=self._seen(self._anywhere(done.id)[0], now),
            outcome=done.outcome,
            near=near,
            superseded=done.superseded,
            conflicts_with=done.conflicts_with,
        )

    def _use(self, found: list[Held], change: Change) -> list[wire.Percept]:
        for held in found:
            self.store.use(held.id, change.stamp)
        return [self._seen(self.store.percepts[held.id], change.now) for held in found]

    def _get(self, ask: wire.Get, caller: Caller, change: Change) -> wire.Percepts:
        _check_text(ask.query, "query")
        found = reading.recall(self.store, caller, ask.query, change.now, ask.min_confidence, ask.max_results)
        self._heard(caller, change, "last_recalled")
        return wire.Percepts(percepts=self._use(found, change))

    def _inject(self, ask: wire.Inject, caller: Caller, change: Change) -> wire.Injected:
        _check_text(ask.prompt, "prompt")
        block, found, dropped = reading.inject(self.store, caller, ask.prompt, change.now, relevant=ask.relevant)
        self._heard(caller, change, "last_recalled")
        return wire.Injected(text=block, percepts=self._use(found, change), dropped=dropped)

    def _turn(self, caller: Caller, change: Change) -> wire.Passed:
        if caller.run is None:
            raise Invalid(
                "run: a turn belongs to a run",
                field="run",
                hint="Begin one with `milkctl run begin`, or use `milkctl consolidate`.",
            )
        self._heard(caller, change, "last_turn")
        report = run_pass(change, caller.session, runs.sitting_of(self.store, caller.run))
        return wire.Passed(report=report)

    def _consolidate(self, ask: wire.Consolidate, caller: Caller, change: Change) -> wire.Passed:
        session = sessions.checked(self.store, ask.session) if ask.session else caller.session
        run = caller.run if session == caller.session else None
        return wire.Passed(report=run_pass(change, session, runs.pass_sitting(self.store, run, session)))

    def _detach(self, caller: Caller, now: Now) -> wire.Passed:
        if caller.run is None:
            return wire.Passed(report=wire.Report(session=caller.session), ran=False)
        return wire.Passed(report=runs.end(self.store, caller.run, "detached", now, self.new_id))

    def _forget(self, ask: wire.Forget, caller: Caller, change: Change) -> wire.Forgotten:
        store = self.store
        ids = list(dict.fromkeys(store.resolve(given, "ids") for given in ask.ids))
        for percept_id in ids:
            held, _ = self._anywhere(percept_id)
            recording.check_visible(caller, held, "ids")
        superseded = [old for i in ids for name in (i, *store.once_called(i)) for old in store.superseded_by(name)]
        change.begin()
        for percept_id in ids:
            erase(change, percept_id)
            change.tell("forgotten", detail=percept_id)
        return wire.Forgotten(ids=ids, superseded=[i for i in superseded if i not in ids])

    def _link(self, ask: wire.Link, caller: Caller, change: Change) -> wire.Linked:
        source = recording.living(self.store, caller, ask.source, "source")
        target = recording.living(self.store, caller, ask.target, "target")
        if source.id == target.id:
            raise Invalid("target: is the source itself; an edge joins two percepts", field="target")
        sessions_met = {held.scope for held in (source, target)} - {"global"}
        if len(sessions_met) > 1:
            raise Invalid("target: belongs to another session than the source (M2)", field="target")
        if ask.supersede and ask.relation != "updates":
            raise Invalid("supersede: goes with the relation updates only", field="supersede")
        edge, created = connect(change, source.id, target.id, ask.relation)
        if ask.supersede:
            recording.supersede(change, caller, target, source.id)
        if created:
            change.tell("linked", source, detail=f"{ask.relation} {target.id}")
        return wire.Linked(edge=edge, created=created)

    def _unlink(self, ask: wire.Unlink, caller: Caller, change: Change) -> wire.Linked:
        store = self.store
        ends = []
        for given, field in ((ask.source, "source"), (ask.target, "target")):
            held, _ = self._anywhere(store.resolve(given, field))
            recording.check_visible(caller, held, field)
            ends.append(held.id)
        relations = [ask.relation] if ask.relation else ["extends", "updates", "derives", "contradicts"]
        keys = [edge_key(ends[0], ends[1], relation) for relation in relations]
        if "contradicts" in relations:
            keys.append(edge_key(ends[1], ends[0], "contradicts"))
        found = [key for key in keys if key in store.links]
        if not found:
            raise NotFound("relation: there is no such edge between the two", field="relation")
        for key in found:
            store.put("edge", key, None)
        change.begin()
        change.tell("unlinked", detail=f"{ends[0]} {ends[1]}")
        return wire.Linked(removed=len(found))

    def _list(self, ask: wire.List, caller: Caller, now: Now) -> wire.Percepts:
        _check_text(ask.pattern, "pattern")
        if ask.min_w is not None and not 0.0 <= ask.min_w <= 1.0:
            raise Invalid(f"min_w: {ask.min_w} is not in 0 to 1", field="min_w")
        names = [] if ask.scope == "session" else ["global"]
        if ask.scope != "global":
            wide = ask.all_sessions and caller.sees_all_sessions
            names += self.store.sessions() if wide else [caller.session]
        found, more = reading.listed(
            self.store,
            names,
            caller,
            producer=ask.producer,
            min_w=ask.min_w,
            pattern=ask.pattern,
            after=ask.after,
            limit=ask.limit,
        )
        return wire.Percepts(percepts=[self._seen(held, now) for held in found], next=more)

    def _show(self, ask: wire.Show, caller: Caller, now: Now) -> wire.Shown:
        store = self.store
        held, _ = self._found(ask.target, caller)
        gone = store.archive.get(held.id)
        group = store.groups.get(held.record.engram_id)
        return wire.Shown(
            percept=self._seen(held, now),
            edges=[link.edge for link in store.links_of(held.id)],
            engram=engram_now(store, group, store.members(group.id)) if group else None,
            archived=archived_entry(store, gone, store.dormant_with(held.id)) if gone else None,
        )

    def _conflicts(self, caller: Caller, now: Now) -> wire.ConflictList:
        store, found = self.store, []
        scopes = {GLOBAL, caller.session}
        links = sorted((store.links[key] for key in store.contradictions), key=lambda link: link.seq)
        for link in links:
            ends = [store.percepts[link.edge.source], store.percepts[link.edge.target]]
            if caller.sees_all_sessions or all(caller.sees(h.record) and h.scope in scopes for h in ends):
                found.append(wire.Conflict(self._seen(ends[0], now), self._seen(ends[1], now), link.edge))
        return wire.ConflictList(conflicts=found)


def check_protocol(protocol: int, version: str, own: str) -> None:
    """Raise VersionMismatch, naming both sides, for a protocol that is not spoken here."""
    if protocol not in wire.SPOKEN:
        raise VersionMismatch(
            f"the client speaks protocol {protocol} (milk_client {version or 'unknown'}), "
            f"this daemon {wire.PROTOCOL} (milkd {own})"
        )


def fault(error: MilkError, number: int, version: str) -> wire.Fault:
    """An error as it goes over the wire."""
    return wire.Fault(
        id=number,
        code=error.code,
        message=error.message,
        hint=error.hint,
        field=error.field,
        candidates=list(error.candidates),
        protocol=wire.PROTOCOL,
        version=version,
    )


def _check_text(text: str, field: str) -> None:
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise Invalid(f"{field}: has {size} bytes; at most {MAX_TEXT_BYTES}", field=field)


def _pace(store: Store, scope: str, now: Now) -> float:
    """Running seconds of a scope in a second of wall clock since its older sample; 0 where unknown."""
    wall, clock = store.meta.get(f"pace.wall:{scope}"), store.meta.get(f"pace.clock:{scope}")
    if wall is None or clock is None or now.wall - wall < 60.0:
        return 0.0
    return (store.clocks.reading(scope) - clock) / (now.wall - wall)


__all__ = ["Identity", "Internal", "Peer", "Retune", "Service", "check_protocol", "fault", "stamp"]
