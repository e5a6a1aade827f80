"""The pass (M15 to M18): its steps, in order, over the global scope and one session."""

from __future__ import annotations

import heapq

from milk_client.wire import Report
from msgspec.structs import replace

from milkd.cells import PassMark
from milkd.clocks import Sitting
from milkd.keeping import (
    Change,
    corroborate,
    make_global,
    merge,
    revise,
    same_global,
    send_to_archive,
)
from milkd.rules import passes, weight
from milkd.rules.percept import GLOBAL, Held, Link
from milkd.scopes import Scope
from milkd.store import Store


def run_pass(change: Change, session: str, sitting: Sitting | None) -> Report:
    """One pass; returns its report. ``sitting`` is whose edges act, None = none do (M13).

    Step 1 has no loop: strengths are closed forms of the running clocks (M10), so bringing them to the
    present is reading the clock. Step 7 is the caller's: the answer waits for the journal.
    """
    store = change.store
    number = change.event
    local, world = store.scope(session), store.scope(GLOBAL)
    decayed, session_dt_s = _faded(store, local)
    global_decayed, global_dt_s = _faded(store, world)
    if sitting is not None and sitting.active:
        _move_edges(change, local, world, sitting)
    ids: dict[str, list[str]] = {
        "pruned": prune(change, local),
        "archived": [_let_go(change, held, "stale") for held in store.due(world)],
    }
    ids["promoted"], deferred_for = _promote(change, local)
    ids["evicted"] = _evict(change, world)
    report = Report(
        session=session,
        decayed=decayed,
        global_decayed=global_decayed,
        promotion_deferred=sum(deferred_for.values()),
        session_dt_s=session_dt_s,
        global_dt_s=global_dt_s,
        deferred_for=deferred_for,
        ids={kind: found for kind, found in ids.items() if found},
        **{kind: len(found) for kind, found in ids.items()},
    )
    for scope in (local, world):
        mark = PassMark(store.clocks.reading(scope.name), change.stamp, report, number)
        store.put_lazy("pass", scope.name, mark)
        scope.touched.clear()
    _count(store, report)
    change.tell("pass", session=session, detail=f"{number} {_in_words(report)}")
    return report


def _faded(store: Store, scope: Scope) -> tuple[int, float]:
    """How many of a scope's percepts decay has lowered since its last pass or their last change (M18)."""
    clock = store.clocks.reading(scope.name)
    mark = store.marks.get(scope.name)
    since = mark.clock_s if mark else 0.0
    if clock <= since:
        return 0, 0.0
    fresh = 0
    for percept_id in scope.touched:
        held = store.percepts[percept_id]
        fades = not scope.is_global or held.record.w > store.knobs.prune_threshold
        if held.at_s >= clock and fades and not held.record.core:
            fresh += 1
    return scope.fading - fresh, clock - since


def prune(change: Change, scope: Scope) -> list[str]:
    """Step 3: what of a session is no longer among the living goes into the archive (M9, M16)."""
    store = change.store
    return [_let_go(change, held, "pruned") for held in store.due(scope) if not store.spared(held)]


def _let_go(change: Change, held: Held, reason: str) -> str:
    send_to_archive(change, held, reason)  # type: ignore[arg-type]
    return held.id


def _move_edges(change: Change, local: Scope, world: Scope, sitting: Sitting) -> None:
    """Step 2: edges act in the order they were made, once a sitting (M13)."""
    store = change.store
    links = [store.links[key] for key in (*world.acting, *local.acting)]
    for link in sorted(links, key=lambda link: link.seq):
        if passes.may_act(link.edge, sitting.number):
            _act(change, link, sitting)


def _act(change: Change, link: Link, sitting: Sitting) -> None:
    store, edge = change.store, link.edge
    source, target = store.percepts[edge.source], store.percepts[edge.target]
    if edge.relation == "contradicts":
        _weaken(change, source, target.record.producer)
        _weaken(change, target, source.record.producer)
    elif not target.record.core:
        w = passes.boosted(store.present(target))
        confirmed = passes.boosted(store.confirmed(target))
        revise(change, target, w, confirmed, **corroborate(change, target.record, sitting.number))
    acted = replace(
        edge,
        propagated=edge.propagated + 1,
        propagated_at=change.stamp,
        propagated_event=change.event,
    )
    store.put("edge", link.key, replace(link, edge=acted))


def _weaken(change: Change, held: Held, other_producer: str) -> None:
    if held.record.core:
        return
    store, producer = change.store, held.record.producer
    w, confirmed = store.present(held), store.confirmed(held)
    lower = passes.contradicted(w, producer, other_producer)
    lower_confirmed = passes.contradicted(confirmed, producer, other_producer)
    if (lower, lower_confirmed) != (w, confirmed):
        revise(change, held, lower, lower_confirmed)


def _promote(change: Change, local: Scope) -> tuple[list[str], dict[str, int]]:
    """Step 5: promote what qualifies, count what is held back and by what (M17)."""
    store = change.store
    promoted: list[str] = []
    deferred: dict[str, int] = {}
    for held in sorted((store.percepts[i] for i in local.strong), key=lambda held: held.seq):
        confirmed = store.confirmed(held)
        stand = passes.standing(held.record, confirmed, store.blocked(held.id), store.knobs)
        same = same_global(store, held) if stand == "promote" else None
        if same is not None and store.blocked(same[0].id):
            stand = "contradiction"
        if stand == "promote":
            w = confirmed if store.knobs.reinforcement == "restore" else store.present(held)
            if same is not None:
                merge(change, same[0], held, same[1], w, confirmed)
            else:
                change.tell("promoted", make_global(change, held, w, confirmed), session=local.name)
            promoted.append(held.id)
        elif stand != "weak":
            deferred[stand] = deferred.get(stand, 0) + 1
    return promoted, deferred


def _evict(change: Change, world: Scope) -> list[str]:
    """Step 6: while there are too many globals, the lowest ranked leave, core never (M16)."""
    store = change.store
    surplus = len(world.living) - store.knobs.global_max
    if surplus <= 0:
        return []
    others = [held for i in world.living if not (held := store.percepts[i]).record.core]
    lowest = heapq.nsmallest(surplus, others, key=lambda held: (rank_of(store, held, change.now.wall), held.seq))
    return [_let_go(change, held, "evicted") for held in lowest]


def rank_of(store: Store, held: Held, wall: float) -> float:
    """A percept's rank now (M8)."""
    return weight.rank_score(store.present(held), held.record.evidence, held.updated_ts, wall, store.knobs)


def _count(store: Store, report: Report) -> None:
    """Totals under OpenTelemetry's names (M18)."""
    for name in (
        "decayed", "pruned", "promoted", "promotion_deferred", "global_decayed", "archived", "evicted",
    ):  # fmt: skip
        key = f"milk.memory.consolidation.{name}"
        store.put_lazy("meta", key, store.meta.get(key, 0.0) + getattr(report, name))
    key = "milk.memory.consolidation.passes"
    store.put_lazy("meta", key, store.meta.get(key, 0.0) + 1)


def _in_words(report: Report) -> str:
    parts = [
        f"{count} {name.replace('_', ' ')}"
        for name in ("promoted", "promotion_deferred", "pruned", "archived", "evicted")
        if (count := getattr(report, name))
    ]
    return ", ".join(parts) or "nothing to do"
