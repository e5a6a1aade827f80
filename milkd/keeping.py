"""What can befall a percept, each as one deed on the store: born, revised, archived, revived, promoted.

A ``Change`` is one request's hand on the store: its clocks, its event number, a source of new ids, and the
words in which what happened is told to those who watch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milk_client.errors import Refused
from milk_client.wire import NOT_IDLE, Edge, Event, EventKind, PerceptRecord, Reason, Relation
from msgspec.structs import replace

from milkd.clocks import Run
from milkd.rules import passes, text, weight
from milkd.rules.percept import GLOBAL, Gone, Group, Held, Link, Now, edge_key, stamp, unstamp
from milkd.store import Store
from milkd.tables import FORGOTTEN, UNSCRUBBED


class Change:
    """One request's (or pass's) hand on the store. Takes an event number when it first changes something."""

    def __init__(self, store: Store, now: Now, new_id: Callable[[], str], run: Run | None = None) -> None:
        self.store = store
        self.now = now
        self.new_id = new_id
        self.run = run
        self.stamp = stamp(now.wall)
        self._event = 0

    @property
    def event(self) -> int:
        """The event number of this change (M5)."""
        if not self._event:
            self._event = self.store.next_event()
        return self._event

    def begin(self) -> None:
        """Take the event number: this is a change, even if nothing of it names the number."""
        _ = self.event

    def tell(self, kind: EventKind, held: Held | None = None, *, detail: str = "", session: str = "") -> None:
        """Note an event for those who watch; it leaves when the change is on disk."""
        self.store.events.append(
            Event(
                kind=kind,
                at=self.stamp,
                number=self._event or self.store.event,
                session=session or (held.scope if held else ""),
                run=self.run.id if self.run else "",
                percept=held.id if held else "",
                content=held.record.content if held else "",
                detail=detail,
            )
        )


def revise(change: Change, held: Held, w: float, confirmed: float, **fields: Any) -> Held:
    """Give a living percept other numbers, as of now, and other fields; returns it as it is then.

    Under "add" the confirmed strength follows ``w`` (M11).
    """
    store = change.store
    if store.knobs.reinforcement == "add":
        confirmed = w
    record = replace(held.record, w=w, w_confirmed=confirmed, **fields)
    updated_ts = unstamp(record.updated_at) if "updated_at" in fields else held.updated_ts
    new = replace(held, record=record, at_s=store.clocks.reading(held.scope), updated_ts=updated_ts)
    store.put("percept", held.id, new)
    return new


def used(change: Change, held: Held) -> Held:
    """Idle 0 and used now, as part of a change (a mere recall goes by `Store.use`)."""
    clock = change.store.clocks.reading(GLOBAL)
    new = replace(held, record=replace(held.record, last_used_at=change.stamp), idle_from_s=clock)
    change.store.put("percept", held.id, new)
    return new


def give_birth(change: Change, record: PerceptRecord, scope: str, subject: str = "") -> Held:
    """A new percept in a scope, idle 0; with a subject it joins that engram (M2)."""
    store = change.store
    if subject:
        engram = engram_of(change, subject, scope)
        record = replace(record, engram_id=engram, roles={**record.roles, "theme": subject})
    held = Held(
        record=record,
        scope=scope,
        at_s=store.clocks.reading(scope),
        idle_from_s=store.clocks.reading(GLOBAL),
        updated_ts=change.now.wall,
        seq=store.next_seq(),
    )
    store.put("percept", held.id, held)
    return held


def engram_of(change: Change, label: str, scope: str, extra: dict[str, bytes] | None = None) -> str:
    """The id of a scope's engram of that label, made on first use, with fields of others (M2, M3)."""
    store = change.store
    known = store.scope(scope).engrams.get(label)
    if known is not None:
        return known
    engram_id = change.new_id()
    group = Group(engram_id, label, scope, change.stamp, change.stamp, extra or {})
    store.put("engram", engram_id, group)
    return engram_id


def leave_engram(change: Change, engram_id: str, *, with_extra: bool = False) -> None:
    """Drop an engram that its last living member has left; one with fields of others stays (M3), or goes with them."""
    group = change.store.groups.get(engram_id)
    if group is not None and not change.store.has_members(engram_id) and (with_extra or not group.extra):
        change.store.put("engram", engram_id, None)


_TOLD: dict[Reason, EventKind] = {
    "pruned": "pruned",
    "stale": "archived",
    "evicted": "evicted",
    "superseded": "superseded",
    "summarised": "archived",
}


def send_to_archive(change: Change, held: Held, reason: Reason, successor: str = "") -> Gone:
    """Let a percept go, so that it can come back (M4). Its edges are out of force from now on (M19)."""
    gone = Gone(held=held, reason=reason, at=change.stamp, at_ts=change.now.wall, successor=successor)
    change.store.put("percept", held.id, None)
    change.store.put("archive", held.id, gone)
    change.tell(_TOLD[reason], held, detail=reason)
    return gone


def revive(change: Change, gone: Gone) -> Held:
    """Bring an archived percept back to its scope, strength as it has faded since, idle 0 (M4, M11)."""
    store = change.store
    held = gone.held
    record = held.record
    if record.engram_id and record.engram_id not in store.groups:
        label = record.roles.get("theme", "")
        record = replace(record, engram_id=engram_of(change, label, held.scope) if label else "")
    w = store.present(held)
    back = replace(
        held,
        record=replace(record, w=w, idle_seconds=NOT_IDLE),
        at_s=store.clocks.reading(held.scope),
        idle_from_s=store.clocks.reading(GLOBAL),
    )
    store.put("archive", held.id, None)
    store.put("percept", held.id, back)
    return back


def make_global(change: Change, held: Held, w: float, confirmed: float, **fields: Any) -> Held:
    """Move a session percept to the global scope with these numbers, idle 0; its edges follow (M17, M19)."""
    store = change.store
    clock = store.clocks.reading(GLOBAL)
    if store.knobs.reinforcement == "add":
        confirmed = w
    old_engram = held.record.engram_id
    engram = ""
    if old_engram in store.groups:
        group = store.groups[old_engram]
        engram = engram_of(change, group.label, GLOBAL, group.extra)
    record = replace(held.record, w=w, w_confirmed=confirmed, engram_id=engram, **fields)
    new = replace(
        held,
        record=record,
        scope=GLOBAL,
        at_s=clock,
        idle_from_s=clock,
        updated_ts=unstamp(record.updated_at),
    )
    store.put("percept", held.id, new)
    leave_engram(change, old_engram, with_extra=True)  # the global one has them now
    return new


def make_core(change: Change, held: Held) -> Held:
    """Make a living percept a core global, both numbers 1 (M11, M20); one with the global that says the same (M17).

    Raises Refused at ``core_max``.
    """
    store = change.store
    same = same_global(store, held) if held.scope != GLOBAL else None
    if same is not None and not store.blocked(same[0].id):
        held = merge(change, same[0], held, same[1], store.present(held), store.confirmed(held))
    if not held.record.core:
        check_core_room(store)
    if held.scope == GLOBAL:
        return used(change, revise(change, held, 1.0, 1.0, core=True))
    return make_global(change, held, 1.0, 1.0, core=True)


def check_core_room(store: Store) -> None:
    """Raise Refused when there are ``core_max`` core percepts already (M20)."""
    count = len(store.scope(GLOBAL).core)
    if count >= store.knobs.core_max:
        raise Refused(
            f"there are {count} core percepts, and core_max is {store.knobs.core_max}",
            hint="Unpin or forget some (`milkctl list --scope global`), or raise core_max in milkd.toml.",
            field="core",
        )


def connect(change: Change, source: str, target: str, relation: Relation) -> tuple[Edge, bool]:
    """Make an edge; again = no change, and `contradicts` is the same whichever way (M2)."""
    store = change.store
    keys = [edge_key(source, target, relation)]
    if relation == "contradicts":
        keys.append(edge_key(target, source, relation))
    for key in keys:
        if key in store.links:
            return store.links[key].edge, False
    edge = Edge(source, target, relation, made_event=change.event)
    store.put("edge", keys[0], Link(edge, store.next_seq()))
    return edge, True


def move_edges(change: Change, old: str, new: str, *, contradictions: bool) -> None:
    """Give a percept's edges to another; of doubles the older stays, none to itself (M11, M17)."""
    store = change.store
    for link in store.links_of(old):
        edge = link.edge
        if edge.relation == "contradicts" and not contradictions:
            continue
        store.put("edge", link.key, None)
        moved = replace(
            edge,
            source=new if edge.source == old else edge.source,
            target=new if edge.target == old else edge.target,
        )
        if moved.source == moved.target:
            continue
        fresh = replace(link, edge=moved)
        rivals = [fresh.key]
        if moved.relation == "contradicts":
            rivals.append(edge_key(moved.target, moved.source, moved.relation))
        double = next((store.links[key] for key in rivals if key in store.links), None)
        if double is not None:
            if double.seq < link.seq:
                continue
            store.put("edge", double.key, None)
        store.put("edge", fresh.key, fresh)


def same_global(store: Store, held: Held) -> tuple[Held, str] | None:
    """The global that already says what a session percept says, and M14's reason; the global is the older."""
    world, content = store.scope(GLOBAL), held.record.content
    threshold = store.knobs.duplicate_threshold
    best: tuple[float, float, int, Held, str] | None = None
    for percept_id in world.living.similar(content, text.terms(content)[0], threshold):
        older = store.percepts[percept_id]
        verdict = text.compare(
            text.analyse(older.record.content),
            text.analyse(content),
            older_producer=older.record.producer,
            newer_producer=held.record.producer,
            older_settled=True,
            threshold=threshold,
        )
        if verdict.kind == "restatement":
            rank = (-verdict.overlap, older.updated_ts, older.seq, older, verdict.reason)
            if best is None or rank[:3] < best[:3]:
                best = rank
    return (best[3], best[4]) if best else None


def merge(change: Change, older: Held, newer: Held, reason: str, w: float, confirmed: float) -> Held:
    """Two that say the same become one: the global's id, the larger of each number (M17)."""
    store = change.store
    numbers = (max(store.present(older), w), max(store.confirmed(older), confirmed))
    record = passes.merged(older.record, newer.record, reason, numbers)
    move_edges(change, newer.id, older.id, contradictions=True)
    store.put("percept", newer.id, None)
    store.put("merged", newer.id, older.id)
    leave_engram(change, newer.record.engram_id)
    clock = store.clocks.reading(GLOBAL)
    merged = replace(
        older,
        record=record,
        at_s=clock,
        idle_from_s=clock,
        updated_ts=max(older.updated_ts, newer.updated_ts),
        extra={**newer.extra, **older.extra},
    )
    store.put("percept", older.id, merged)
    change.tell("promoted", merged, session=newer.scope, detail=f"merged {newer.id}")
    return merged


def erase(change: Change, percept_id: str) -> None:
    """Remove a percept and its edges from the store, the archive included (M20)."""
    store = change.store
    for link in store.links_of(percept_id):
        store.put("edge", link.key, None)
    held = store.percepts.get(percept_id)
    gone = store.archive.get(percept_id)
    if held is not None:
        store.put("percept", percept_id, None)
        store.erased.append((percept_id, held.record.content))
        leave_engram(change, held.record.engram_id, with_extra=True)
    if gone is not None:
        store.put("archive", percept_id, None)
        store.erased.append((percept_id, gone.held.record.content))
    if percept_id in store.merged:  # it had come back by hand, and names nothing else from now on
        store.put("merged", percept_id, None)
    names = [percept_id]
    for merged in store.once_called(percept_id):  # an earlier wording of it, wherever a file still has that
        store.put("merged", merged, None)
        if merged not in store.percepts and merged not in store.archive:
            store.erased.append((merged, ""))
            names.append(merged)
    for name in names:
        # A file written before this, or an edit of one, must not bring it back.
        store.put("meta", FORGOTTEN + name, change.now.wall)
        # And until the files are rid of it, a start goes on with that: whoever asks again is told that it is done.
        store.put("meta", UNSCRUBBED + name, change.now.wall)


def corroborate(change: Change, record: PerceptRecord, sitting: int | None) -> dict[str, Any]:
    """The fields of one more corroboration, or none where the sitting may not add any (M12)."""
    if sitting is None or not passes.may_corroborate(sitting, record):
        return {}
    return {
        "evidence": record.evidence + 1,
        "evidence_at": change.stamp,
        "evidence_event": change.event,
    }


def at_least_birth(record: PerceptRecord, w: float, confirmed: float) -> tuple[float, float]:
    """Both numbers, at least the percept's birth strength (M4, M11)."""
    least = weight.birth(record.producer, record.core)
    return max(w, least), max(confirmed, least)
