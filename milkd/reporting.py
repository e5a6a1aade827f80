"""What the daemon tells of itself and of the store as a whole: status, archive pages, export pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milk_client import wire
from milk_client.errors import NotFound, Refused
from msgspec import Struct

from milkd import shapes
from milkd.order import Order, page
from milkd.reading import matches
from milkd.recording import Caller
from milkd.rules.percept import GLOBAL, Now
from milkd.scopes import Scope
from milkd.store import Store

OTEL = "milk.memory.consolidation."


class Identity(Struct, frozen=True):
    """What the daemon says of itself in `welcome`."""

    version: str
    pid: int
    home: str
    boot: str
    events: str
    max_message_bytes: int


def status(store: Store, me: Identity, now: Now) -> wire.Statused:
    """What the core knows; the roof adds its own (files, journal, process, health of disks and watchers)."""
    sessions = {name: store.living_count(name) for name in store.sessions()}
    marks = [mark for mark in store.marks.values() if mark.report is not None]
    last = max(marks, key=lambda mark: mark.number, default=None)
    health = []
    surplus = store.living_count(GLOBAL) - store.knobs.global_max
    if surplus > 0:
        health.append(
            f"{surplus} globals more than global_max ({store.knobs.global_max}), and only core is left to evict: "
            "unpin or forget some, or raise global_max"
        )
    notes = []
    conflicts = len(store.contradictions)
    if conflicts:
        notes.append(f"{conflicts} unresolved contradiction(s) block promotion: see `milkctl conflicts`")
    return wire.Statused(
        pid=me.pid,
        version=me.version,
        protocol=wire.PROTOCOL,
        home=me.home,
        started_at="",
        uptime_s=0.0,
        health=health,
        notes=notes,
        clocks={
            "global_s": store.clocks.reading(GLOBAL),
            "sessions": {name: store.clocks.reading(name) for name in sessions},
        },
        runs=[_run_line(store, run, now) for run in store.clocks.live_runs()],
        seen=sorted(store.seen.values(), key=lambda line: (line.session, line.role)),
        counts={
            "global": store.living_count(GLOBAL),
            "sessions": sessions,
            "archive": len(store.archive),
            "edges": len(store.links),
            "core": len(store.scope(GLOBAL).core),
            "conflicts": conflicts,
        },
        last_pass=last.report if last else None,
        last_pass_at=last.at if last else "",
        totals={key: value for key, value in store.meta.items() if key.startswith(OTEL)},
        event=store.event,
    )


def _run_line(store: Store, run: Any, now: Now) -> wire.RunLine:
    heard = store.clocks.heard[run.id]
    return wire.RunLine(
        run=run.id,
        session=run.session,
        role=run.role,
        pid=run.process.pid,
        since=run.began_at,
        silent_s=max(0.0, now.boot - heard.request_boot),
        stopped=heard.stopped,
        sitting=run.sitting,
    )


def archived_page(store: Store, caller: Caller, ask: wire.ArchiveList) -> wire.ArchivedList:
    """A page of archive entries, newest first: of the global scope and the session, of all where a person asks."""
    wide = ask.all_sessions and caller.sees_all_sessions
    names = store.scopes if wide else {GLOBAL, caller.session}

    def wanted(percept_id: str) -> bool:
        record = store.archive[percept_id].held.record
        return caller.sees(record) and (not ask.pattern or matches(record.content, ask.pattern))

    let_go = [store.scopes[name].let_go for name in names if name in store.scopes]
    found, more = page(let_go, ask.after, ask.limit, wanted, backwards=True)
    return wire.ArchivedList(
        entries=[shapes.archived_entry(store, store.archive[i], store.dormant_with(i)) for i in found],
        next=more,
    )


def export_page(store: Store, caller: Caller, ask: wire.Export) -> wire.Exported:
    """A page of a scope's file, item by item, as it would be written now. Raises Refused for an agent."""
    if not caller.sees_all_sessions:
        raise Refused("export: whole files are for a person's tool; an agent lists what it may see")
    scope = store.scopes.get(ask.scope)
    if scope is None and ask.part != "archive":
        raise NotFound(f"scope: there is no session {ask.scope!r}", field="scope")
    orders, written = _part(store, scope, ask.part)
    found, more = page(orders, ask.after, ask.limit, lambda _: True)
    return wire.Exported(items=[written(name) for name in found], next=more)


def _part(store: Store, scope: Scope | None, part: wire.Part) -> tuple[list[Order], Callable[[str], bytes]]:
    """The order of what a part of a scope holds, and how one of it is written; the archive is that of all scopes."""
    if scope is None or part == "archive":
        let_go = [one.let_go for one in store.scopes.values()]
        return let_go, lambda i: shapes.archived_json(store, store.archive[i], store.dormant_with(i))
    match part:
        case "percepts":
            return [scope.born], lambda i: shapes.percept_json(store, store.percepts[i])
        case "edges":
            return [scope.edges], lambda key: shapes.edge_json(store.links[key])
        case "engrams":
            return [scope.groups], lambda i: shapes.engram_json(store, store.groups[i], store.members(i))
