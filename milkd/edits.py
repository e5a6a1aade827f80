"""Hand edits of the JSON files, merged as changes through the one door.

An edit is what a person's file says that its base (the file as milkd wrote it) did not: only that is
applied to what is now remembered, so whatever milkd learned since the base was written stays. What a person
does to a file obeys the rules of the command that does the same (M2, M11, M20); an edit that breaks one is
refused as a whole, and the file set aside.
"""

from __future__ import annotations

from typing import Any

from milk_client.errors import Invalid
from milk_client.wire import Edge, PerceptRecord
from msgspec import Struct
from msgspec.structs import fields, replace

from milkd.keeping import Change, at_least_birth, engram_of, leave_engram, make_core, make_global, revise, revive
from milkd.keeping import send_to_archive as let_go
from milkd.recording import checked_content
from milkd.rules import weight
from milkd.rules.percept import GLOBAL, Group, Held, Link, edge_key
from milkd.shapes import Parsed, held_from
from milkd.tables import FORGOTTEN

_NAMES = tuple(field.name for field in fields(PerceptRecord) if field.name != "id")
_WORDS = ("content", "producer", "consumer", "roles", "core")
"""What a pasted percept says; its numbers are those that milkd knows better."""
Read = tuple[PerceptRecord, dict[str, bytes]]


class Edited(Struct, frozen=True):
    """A scope's file as a person left it, as milkd had written it, and its bytes."""

    scope: str
    theirs: Parsed
    base: Parsed
    data: bytes = b""


def merge_edit(change: Change, edited: Edited) -> None:
    """Apply what the edit changed. A percept taken out of the file goes to the archive, not to oblivion.

    Raises Invalid or Refused where the edit asks for what no command may do.
    """
    store, scope = change.store, edited.scope
    change.begin()
    base = {record.id: (record, extra) for record, extra in edited.base.percepts}
    theirs = {record.id: (record, extra) for record, extra in edited.theirs.percepts}
    _merge_engrams(change, edited)
    for percept_id, read in theirs.items():
        if FORGOTTEN + percept_id in store.meta:
            continue
        if percept_id in base:
            _merge_percept(change, base[percept_id], read)
        else:
            _add(change, scope, read)
    for percept_id in base.keys() - theirs.keys():
        held = store.percepts.get(percept_id)
        if held is not None and held.scope == scope:
            let_go(change, held, "evicted")
    _merge_members(change, edited)
    _merge_edges(change, edited)
    if edited.theirs.extra != edited.base.extra:
        store.put("file", scope, edited.theirs.extra)
    change.tell("edited", session=scope, detail="by hand")


# ---------------------------------------------------------------- percepts


def _merge_percept(change: Change, base: Read, theirs: Read) -> None:
    """A percept that was in the file before: what differs from the base is the edit."""
    changed = {n: getattr(theirs[0], n) for n in _NAMES if getattr(theirs[0], n) != getattr(base[0], n)}
    if not changed and theirs[1] == base[1]:
        return
    held = change.store.percepts.get(theirs[0].id) or _brought_back(change, theirs[0].id)
    if held is None:
        raise Invalid(f"percepts: #{theirs[0].id[:8]} was edited, and is part of another percept by now")
    _apply(change, held, changed, theirs[1])


def _add(change: Change, scope: str, read: Read) -> None:
    """A percept that was not in the file before: a new one, or one pasted from another file or an older state."""
    record, extra = read
    store = change.store
    held = store.percepts.get(record.id) or _brought_back(change, record.id)
    if held is not None:
        held = _taken_to(change, held, scope)
        _apply(
            change,
            held,
            {n: getattr(record, n) for n in _WORDS if getattr(record, n) != getattr(held.record, n)},
            extra,
        )
        return
    _check_engram(change, record.engram_id, scope)
    clocks = store.clocks
    plain = replace(record, content=checked_content(store, record.content), core=False)
    held = held_from(plain, extra, scope, clocks.reading(scope), clocks.reading(GLOBAL), store.next_seq())
    store.put("percept", record.id, held)
    if record.core:
        make_core(change, held)


def _brought_back(change: Change, percept_id: str) -> Held | None:
    """An archived percept, living again by a person's word (M4); None where there is none."""
    gone = change.store.archive.get(percept_id)
    if gone is None:
        return None
    held = revive(change, gone)
    return revise(change, held, *at_least_birth(held.record, change.store.present(held), change.store.confirmed(held)))


def _taken_to(change: Change, held: Held, scope: str) -> Held:
    """A living percept in another file than before; its strength is what it was (M9)."""
    store = change.store
    if held.scope == scope:
        return held
    w, confirmed = store.present(held), store.confirmed(held)
    if scope == GLOBAL:
        return make_global(change, held, w, confirmed)
    if held.record.core:
        raise Invalid(f"percepts: #{held.id[:8]} is core, and core lives in global.json alone", field="core")
    group = store.groups.get(held.record.engram_id)
    engram = engram_of(change, group.label, scope) if group else ""
    record = replace(held.record, w=w, w_confirmed=confirmed, engram_id=engram)
    moved = replace(held, record=record, scope=scope, at_s=store.clocks.reading(scope))
    store.put("percept", held.id, moved)
    if group:
        leave_engram(change, group.id)
    for link in store.links_of(held.id):
        _check_ends(change, link.edge)
    return moved


def _apply(change: Change, held: Held, changed: dict[str, Any], extra: dict[str, bytes]) -> None:
    """What a person changed of a living percept, as `edit`, `pin` and `unpin` would (M20)."""
    store = change.store
    values = dict(changed)
    core = values.pop("core", held.record.core)
    idle_s = values.pop("idle_seconds", None)
    w, confirmed = store.present(held), store.confirmed(held)
    if "content" in values:
        least = weight.birth("user", held.record.core)
        w, confirmed = max(w, least), max(confirmed, least)
        fresh = {"producer": "user", "updated_at": change.stamp, "evidence": 0, "evidence_at": "", "evidence_event": 0}
        values = {**fresh, **values, "content": checked_content(store, values["content"])}
    if "engram_id" in values:
        _check_engram(change, values["engram_id"], held.scope)
    if held.record.core and not core:
        w = confirmed = weight.UNPINNED
    w, confirmed = values.pop("w", w), values.pop("w_confirmed", confirmed)
    held = revise(change, held, w, confirmed, **values, core=held.record.core and core)
    if extra != held.extra or idle_s is not None:
        idle_from_s = held.idle_from_s if idle_s is None else store.clocks.reading(GLOBAL) - idle_s
        held = replace(held, extra=extra, idle_from_s=idle_from_s)
        store.put("percept", held.id, held)
    if core and not held.record.core:
        make_core(change, held)


# ---------------------------------------------------------------- engrams and edges


def _check_engram(change: Change, engram_id: str, scope: str) -> None:
    group = change.store.groups.get(engram_id)
    if engram_id and (group is None or group.scope != scope):
        raise Invalid(f"engram_id: there is no engram {engram_id!r} in this file", field="engram_id")


def _merge_engrams(change: Change, edited: Edited) -> None:
    store, scope = change.store, edited.scope
    base = {engram.id: (engram.subject_label, extra) for engram, extra in edited.base.engrams}
    for engram, extra in edited.theirs.engrams:
        if base.get(engram.id) == (engram.subject_label, extra):
            continue
        rival = store.scope(scope).engrams.get(engram.subject_label, engram.id)
        if rival != engram.id:
            raise Invalid(f"engrams: there are two of the label {engram.subject_label!r}", field="engrams")
        known = store.groups.get(engram.id)
        if known is not None and known.scope != scope:
            raise Invalid(f"engrams: {engram.id} stands in another file", field="engrams")
        created_at, updated_at = (known or engram).created_at, (known or engram).updated_at
        store.put("engram", engram.id, Group(engram.id, engram.subject_label, scope, created_at, updated_at, extra))


def _merge_members(change: Change, edited: Edited) -> None:
    """Who was put into an engram or taken out of it in its own list, and engrams that were taken out whole."""
    store = change.store
    base = {engram.id: set(engram.percept_ids) for engram, _ in edited.base.engrams}
    theirs = {engram.id: set(engram.percept_ids) for engram, _ in edited.theirs.engrams}
    for engram_id in {**base, **theirs}:
        before, after = base.get(engram_id, set()), theirs.get(engram_id, set())
        for percept_id in before ^ after:
            held = store.percepts.get(percept_id)
            joins = percept_id in after
            if held is None or held.scope != edited.scope or joins == (held.record.engram_id == engram_id):
                continue
            new = engram_id if joins else ""
            old = held.record.engram_id
            revise(change, held, store.present(held), store.confirmed(held), engram_id=new)
            leave_engram(change, old)
    for engram_id in base.keys() - theirs.keys():
        leave_engram(change, engram_id, with_extra=True)


def _merge_edges(change: Change, edited: Edited) -> None:
    store = change.store
    base = {_key(edge): (edge, extra) for edge, extra in edited.base.edges}
    theirs = {_key(edge): (edge, extra) for edge, extra in edited.theirs.edges}
    for key in base.keys() - theirs.keys():
        if key in store.links:
            store.put("edge", key, None)
    for key, (edge, extra) in theirs.items():
        link = store.links.get(key)
        if key not in base:
            back = edge_key(edge.target, edge.source, edge.relation)
            if link is None and not (edge.relation == "contradicts" and back in store.links):
                _check_ends(change, edge)
                store.put("edge", key, Link(edge, store.next_seq(), extra))
        elif (edge, extra) != base[key] and link is not None:
            names = [field.name for field in fields(Edge)]
            changed = {n: getattr(edge, n) for n in names if getattr(edge, n) != getattr(base[key][0], n)}
            store.put("edge", key, replace(link, edge=replace(link.edge, **changed), extra=extra))


def _check_ends(change: Change, edge: Edge) -> None:
    """Raise Invalid for an edge without an end, or between two sessions (M2)."""
    store = change.store
    places = set()
    for end in (edge.source, edge.target):
        gone = store.archive.get(end)
        held = store.percepts.get(end) or (gone.held if gone else None)
        if held is None:
            raise Invalid(f"edges: there is no percept {end!r}", field="edges")
        places.add(held.scope)
    if len(places - {GLOBAL}) > 1:
        raise Invalid(f"edges: #{edge.source[:8]} and #{edge.target[:8]} are of two sessions", field="edges")


def _key(edge: Edge) -> str:
    return edge_key(edge.source, edge.target, edge.relation)
