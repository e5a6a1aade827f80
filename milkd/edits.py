"""Hand edits of the JSON files, merged as changes through the one door.

An edit is what a person's file says that its base (the file as milkd wrote it) did not: only that is
applied to what is now remembered, so whatever milkd learned since the base was written stays.
"""

from __future__ import annotations

from typing import Any

from milk_client.wire import Edge, PerceptRecord
from msgspec import Struct
from msgspec.structs import fields, replace

from milkd.keeping import Change, send_to_archive
from milkd.rules.percept import GLOBAL, Group, Held, Link, edge_key, unstamp
from milkd.shapes import Parsed, held_from
from milkd.store import Store

_NAMES = tuple(field.name for field in fields(PerceptRecord) if field.name != "id")


class Edited(Struct, frozen=True):
    """A scope's file as a person left it, and as milkd had written it."""

    scope: str
    theirs: Parsed
    base: Parsed


def merge_edit(change: Change, edited: Edited) -> None:
    """Apply what the edit changed. A percept taken out of the file goes to the archive, not to oblivion."""
    store, scope = change.store, edited.scope
    assert change.event
    base = {record.id: (record, extra) for record, extra in edited.base.percepts}
    theirs = {record.id: (record, extra) for record, extra in edited.theirs.percepts}
    for engram, extra in edited.theirs.engrams:
        if engram.id not in store.groups:
            group = Group(engram.id, engram.subject_label, scope, engram.created_at, engram.updated_at, extra)
            store.put("engram", engram.id, group)
    for percept_id, (record, extra) in theirs.items():
        if percept_id in base:
            _apply(change, percept_id, base[percept_id], (record, extra))
        elif (
            percept_id not in store.percepts
            and percept_id not in store.archive
            and f"forgotten:{percept_id}" not in store.meta
        ):
            _add(change, scope, record, extra)
    for percept_id in base.keys() - theirs.keys():
        held = store.percepts.get(percept_id)
        if held is not None and held.scope == scope:
            send_to_archive(change, held, "evicted")
    _merge_edges(change, edited)
    if edited.theirs.extra != edited.base.extra:
        store.put("file", scope, edited.theirs.extra)
    change.tell("edited", session=scope, detail="by hand")


def _add(change: Change, scope: str, record: PerceptRecord, extra: dict[str, bytes]) -> None:
    store = change.store
    clocks = store.clocks
    if record.core and scope != GLOBAL:
        record = replace(record, core=False)  # core lives in the global file alone (M11)
    held = held_from(record, extra, scope, clocks.reading(scope), clocks.reading(GLOBAL), store.next_seq())
    store.put("percept", record.id, held)


def _apply(
    change: Change,
    percept_id: str,
    base: tuple[PerceptRecord, dict[str, bytes]],
    theirs: tuple[PerceptRecord, dict[str, bytes]],
) -> None:
    store = change.store
    held = store.percepts.get(percept_id)
    changed = {n: getattr(theirs[0], n) for n in _NAMES if getattr(theirs[0], n) != getattr(base[0], n)}
    if held is None or (not changed and theirs[1] == base[1]):
        return
    store.put("percept", percept_id, _edited(store, held, changed, theirs[1]))


def _edited(store: Store, held: Held, changed: dict[str, Any], extra: dict[str, bytes]) -> Held:
    """The percept with the edited fields, its numbers as of now (M9)."""
    idle_s = changed.pop("idle_seconds", None)
    numbers = {"w": store.present(held), "w_confirmed": store.confirmed(held)}
    record = replace(held.record, **{**numbers, **changed})
    global_s = store.clocks.reading(GLOBAL)
    return replace(
        held,
        record=record,
        at_s=store.clocks.reading(held.scope),
        idle_from_s=held.idle_from_s if idle_s is None else global_s - idle_s,
        updated_ts=unstamp(record.updated_at),
        extra=extra,
    )


def _merge_edges(change: Change, edited: Edited) -> None:
    store = change.store
    base = {_key(edge): edge for edge, _ in edited.base.edges}
    theirs = {_key(edge): (edge, extra) for edge, extra in edited.theirs.edges}
    for key in base.keys() - theirs.keys():
        if key in store.links:
            store.put("edge", key, None)
    for key, (edge, extra) in theirs.items():
        known = edge.source in store.percepts and edge.target in store.percepts
        if key not in base and key not in store.links and known:
            store.put("edge", key, Link(edge, store.next_seq(), extra))


def _key(edge: Edge) -> str:
    return edge_key(edge.source, edge.target, edge.relation)
