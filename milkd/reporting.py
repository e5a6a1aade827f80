"""What the daemon tells of itself and of the store as a whole: status, archive pages, export pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from milk_client import wire
from milk_client.errors import NotFound, Refused
from msgspec import Struct

from milkd import shapes
from milkd.reading import matches
from milkd.recording import Caller
from milkd.rules.percept import GLOBAL, Now
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
    sessions = {name: _living(store, name) for name in store.sessions()}
    marks = [mark for mark in store.marks.values() if mark.report is not None]
    last = max(marks, key=lambda mark: mark.at, default=None)
    health = []
    surplus = _living(store, GLOBAL) - store.knobs.global_max
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
            "global": _living(store, GLOBAL),
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


def _living(store: Store, name: str) -> int:
    scope = store.scopes.get(name)
    if scope is None:
        return 0
    faded = 0 if scope.is_global else sum(1 for held in store.due(scope) if not store.spared(held))
    return len(scope.living) - faded


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
    newest = sorted(store.archive.values(), key=lambda gone: (gone.at_ts, gone.held.id), reverse=True)
    wide = ask.all_sessions and caller.sees_all_sessions
    chosen = [
        gone
        for gone in newest
        if caller.sees(gone.held.record)
        and (wide or gone.held.scope in (GLOBAL, caller.session))
        and (not ask.pattern or matches(gone.held.record.content, ask.pattern))
    ]
    start = next((n + 1 for n, gone in enumerate(chosen) if gone.held.id == ask.after), 0)
    page = chosen[start : start + ask.limit]
    more = page[-1].held.id if start + ask.limit < len(chosen) else ""
    return wire.ArchivedList(
        entries=[shapes.archived_entry(store, gone, store.dormant_with(gone.held.id)) for gone in page],
        next=more,
    )


def export_page(store: Store, caller: Caller, ask: wire.Export) -> wire.Exported:
    """A page of a scope's file, item by item, as it would be written now. Raises Refused for an agent."""
    if not caller.sees_all_sessions:
        raise Refused("export: whole files are for a person's tool; an agent lists what it may see")
    scope = store.scopes.get(ask.scope)
    if scope is None and ask.part != "archive":
        raise NotFound(f"scope: there is no session {ask.scope!r}", field="scope")
    items: Iterable[tuple[str, bytes]]
    match ask.part:
        case "percepts":
            items = ((i, shapes.percept_json(store, store.percepts[i])) for i in (scope.living if scope else ()))
        case "edges":
            links = sorted((store.links[k] for k in (scope.edges if scope else ())), key=lambda link: link.seq)
            items = ((link.key, shapes.edge_json(link)) for link in links)
        case "engrams":
            groups = (store.groups[i] for i in (scope.engrams.values() if scope else ()))
            items = ((g.id, shapes.engram_json(store, g, store.members(g.id))) for g in groups)
        case "archive":
            items = ((i, shapes.archived_json(store, gone, store.dormant_with(i))) for i, gone in store.archive.items())
    page, more = _cut(iter(items), ask.after, ask.limit)
    return wire.Exported(items=[text for _, text in page], next=more)


def _cut(items: Iterator[tuple[str, bytes]], after: str, limit: int) -> tuple[list[tuple[str, bytes]], str]:
    if after:
        items = itertools.islice(itertools.dropwhile(lambda item: item[0] != after, items), 1, None)
    page = list(itertools.islice(items, limit))
    more = page[-1][0] if len(page) == limit and next(items, None) is not None else ""
    return page, more
