"""How runs and sittings begin, go on and end (M5, M6, M15): attach, requests, sweeps, silence, death."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from milk_client.errors import Invalid
from milk_client.wire import Report
from msgspec import Struct
from msgspec.structs import replace

from milkd.clocks import Ending, Process, Run, Sitting
from milkd.consolidation import run_pass
from milkd.keeping import Change, erase
from milkd.rules.percept import Now, stamp
from milkd.rules.weight import DAY_S
from milkd.store import Store
from milkd.tables import FORGOTTEN

FORGOTTEN_S = 30 * DAY_S
"""How long a stale copy of a file is kept from bringing back what was forgotten."""
REMEMBER_S = 3600.0
"""How long an ended run and its outcomes are remembered (interface: an hour after the run's end)."""


class Sweep(Struct, frozen=True):
    """What a look at the processes found (M6). A process in none of the sets was not looked at."""

    alive: frozenset[Process]
    stopped: frozenset[Process] = frozenset()
    dead: frozenset[Process] = frozenset()


def begin(store: Store, run_id: str, session: str, role: str, chain: tuple[Process, ...], now: Now) -> Run:
    """A run begins, or goes on where the same one is live (a reconnect). Returns it.

    ``chain`` is the agent's process and its ancestors, nearest first. Raises Invalid where a live run of
    that id belongs to another session.
    """
    known = store.clocks.runs.get(run_id)
    if known is not None and known.live:
        if known.session != session:
            raise Invalid(f"run: {run_id[:8]} belongs to session {known.session!r}", field="run")
        store.clocks.hear(known, now)
        return known
    return _begin_new(store, run_id, session, role, chain, now)


def again(store: Store, run: Run, chain: tuple[Process, ...], now: Now) -> Run:
    """A request of a run that has ended begins a new run of the same id, session and process (M5)."""
    chain = chain if run.process in chain else (run.process,)
    # A sitting that is known no more went with its process: one that is gone can sit through no other (M12).
    gone = run.sitting if run.sitting not in store.clocks.sittings else None
    return _begin_new(store, run.id, run.session, run.role, chain, now, process=run.process, gone=gone)


def _begin_new(
    store: Store,
    run_id: str,
    session: str,
    role: str,
    chain: tuple[Process, ...],
    now: Now,
    *,
    process: Process | None = None,
    gone: int | None = None,
) -> Run:
    event = store.next_event()
    number = store.clocks.open_sitting(chain)
    if number is None and gone is not None:
        number = gone
        store.put("sitting", str(number), Sitting(number, process or chain[0]))
    if number is None:
        number = event
        # The tree of an agent stays one sitting's worth: one that silence closed opens again at its root.
        closed = {s.process for s in store.clocks.sittings.values() if s.closed}
        root = next((p for p in chain if p in closed), chain[0])
        for old in [n for n, s in store.clocks.sittings.items() if s.closed and s.process == root]:
            store.put_lazy("sitting", str(old), None)
        store.put("sitting", str(number), Sitting(number, root))
    run = Run(run_id, session, role, process or chain[0], number, stamp(now.wall))
    store.put("run", run_id, run)
    store.clocks.hear(run, now)
    store.note_heard_of(run_id)
    Change(store, now, str, run).tell("attached", session=session, detail=f"pid {run.process.pid} as {role}")
    return run


def sitting_of(store: Store, run: Run | None) -> Sitting | None:
    """A run's sitting."""
    return store.clocks.sittings.get(run.sitting) if run else None


def mark_active(store: Store, run: Run) -> None:
    """The run recorded, recalled, injected or signalled a turn: its sitting may move edges (M13)."""
    sitting = sitting_of(store, run)
    if sitting is not None and not sitting.active:
        store.put_lazy("sitting", str(sitting.number), replace(sitting, active=True))


def pass_sitting(store: Store, run: Run | None, session: str) -> Sitting | None:
    """Whose sitting a pass is: the asking run's, else the newest live run's of that session (M13)."""
    if run is None:
        run = next(reversed(store.clocks.live_runs(session)), None)
    return sitting_of(store, run)


def end(store: Store, run: Run, how: Ending, now: Now, new_id: Callable[[], str]) -> Report:
    """A run ends; its exit pass runs before it leaves (M13, M15). Silence may close its sitting (M5)."""
    change = Change(store, now, new_id, run)
    report = run_pass(change, run.session, sitting_of(store, run))
    store.put("run", run.id, replace(run, ended=how, ended_boot=now.boot))
    change.tell(how, session=run.session)
    if how == "silent":
        others = [other for other in store.clocks.live_runs() if other.sitting == run.sitting]
        sitting = sitting_of(store, run)
        if not others and sitting is not None:
            store.put("sitting", str(sitting.number), replace(sitting, closed=True))
    return report


def expire(store: Store, now: Now, alive: Iterable[Run], new_id: Callable[[], str]) -> None:
    """End each run that has been silent too long, at the moment it became so, in order (M6).

    ``alive`` are runs known to be alive at ``now``; they lived through those moments.
    """
    idle_s = store.knobs.run_idle_after_minutes * 60.0
    living = list(alive)
    while (run := store.clocks.next_silence(idle_s, now.boot)) is not None:
        ago = now.boot - store.clocks.silent_at(run, idle_s)
        moment = Now(now.wall - ago, now.mono - ago, now.boot - ago)
        for other in living:
            store.clocks.sight(other, moment.mono)
        end(store, run, "silent", moment, new_id)


def sweep(store: Store, found: Sweep, now: Now, new_id: Callable[[], str]) -> None:
    """Take in what a look at the processes found: who lived on, who is stopped, who is gone (M6)."""
    clocks = store.clocks
    expire(store, now, [run for run in clocks.live_runs() if run.process in found.alive], new_id)
    for run in clocks.live_runs():
        if run.process in found.alive:
            clocks.sight(run, now.mono)
        elif run.process in found.stopped:
            clocks.lose_sight(run, stopped=True)
    for run in clocks.live_runs():
        if run.process in found.dead:
            end(store, run, "died", now, new_id)
    for number, sitting in list(clocks.sittings.items()):
        if sitting.process in found.dead:
            goes_on = any(run.sitting == number for run in clocks.live_runs())  # in a process below it
            left = replace(sitting, closed=True) if goes_on else None
            if left != sitting:
                store.put_lazy("sitting", str(number), left)
    clocks.tidy()
    forget_old(store, now, found.dead)


def forget_old(store: Store, now: Now, dead: frozenset[Process]) -> None:
    """Drop runs and outcomes that nobody can ask for any more.

    A run that silence ended is kept as long as its process: its next request begins it anew (M5).
    """
    for run_id, run in list(store.clocks.runs.items()):
        waits = run.ended == "silent" and run.process not in dead
        if not run.live and not waits and now.boot - run.ended_boot > REMEMBER_S:
            store.put_lazy("run", run_id, None)
    for client, outcomes in list(store.replies.items()):
        asker = store.clocks.runs.get(client)
        if asker is not None and (asker.live or now.boot - asker.ended_boot <= REMEMBER_S):
            continue
        for number, kept in list(outcomes.items()):
            if not 0.0 <= now.boot - kept.boot <= REMEMBER_S:
                store.put_lazy("reply", f"{client} {number}", None)


def expire_archive(store: Store, now: Now) -> int:
    """Drop archived percepts older than ``archive_keep_days`` (0 = never), and old notes of what was forgotten.

    Returns how many percepts were dropped (M4).
    """
    keep_s = store.knobs.archive_keep_days * DAY_S
    old = [gone for gone in store.archive.values() if keep_s > 0 and now.wall - gone.at_ts > keep_s]
    change = Change(store, now, str)
    for gone in old:
        change.begin()
        erase(change, gone.held.id)
    for key, wall in list(store.meta.items()):
        if key.startswith(FORGOTTEN) and now.wall - wall > FORGOTTEN_S:
            store.put_lazy("meta", key, None)
    return len(old)


def sample_pace(store: Store, now: Now) -> None:
    """Remember where the clocks stood, a day or two ago, so that `explain` knows today's pace."""
    for scope, seconds in store.clocks.readings().items():
        newer = store.meta.get(f"pace.next.wall:{scope}")
        if newer is not None and 0.0 <= now.wall - newer < DAY_S:
            continue
        if newer is not None:
            store.put_lazy("meta", f"pace.wall:{scope}", newer)
            store.put_lazy("meta", f"pace.clock:{scope}", store.meta[f"pace.next.clock:{scope}"])
        elif f"pace.wall:{scope}" not in store.meta:
            store.put_lazy("meta", f"pace.wall:{scope}", now.wall)
            store.put_lazy("meta", f"pace.clock:{scope}", seconds)
        store.put_lazy("meta", f"pace.next.wall:{scope}", now.wall)
        store.put_lazy("meta", f"pace.next.clock:{scope}", seconds)


def watched(store: Store) -> frozenset[Process]:
    """The processes that a sweep has to look at: of runs that live or may go on, and of sittings."""
    processes = {run.process for run in store.clocks.runs.values() if run.live or run.ended == "silent"}
    processes.update(sitting.process for sitting in store.clocks.sittings.values())
    return frozenset(processes)
