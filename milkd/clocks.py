"""Runs, sittings and running time (M5, M6): intervals in, seconds out. Pure.

``Clocks`` holds two kinds of state. What must survive to the letter (runs, sittings, the event number) are
frozen structs that the store keeps as cells; what flows by itself (the running clocks, when a run was last
heard and seen) lives here and is written down with every record of the journal and at checkpoints (M7).
"""

from __future__ import annotations

import bisect
import math
from typing import Literal

from msgspec import Struct

from milkd.rules.percept import GLOBAL, Now

Ending = Literal["detached", "died", "silent"]


class Process(Struct, frozen=True, array_like=True):
    """A process for good: pid, start time in ticks since boot, boot id. A pid alone may come again (M5)."""

    pid: int
    ticks: int
    boot: str


class Run(Struct, frozen=True, array_like=True):
    """One agent process's stay (M5). ``sitting`` is the event number at which its sitting began."""

    id: str
    session: str
    role: str
    process: Process
    sitting: int
    began_at: str
    ended: Ending | Literal[""] = ""
    ended_boot: float = 0.0

    @property
    def live(self) -> bool:
        """Whether the run goes on."""
        return not self.ended


class Sitting(Struct, frozen=True, array_like=True):
    """What evidence counts by (M5). ``active`` once it recorded, recalled, injected or signalled a turn (M13)."""

    number: int
    process: Process
    active: bool = False
    closed: bool = False


class Cover:
    """One running clock: the measure of the union of live intervals (M6).

    Intervals arrive out of order (each run from its own last sighting), so those that a run may still reach
    back into are kept, apart from each other and in order.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._spans: list[tuple[float, float]] = []

    def add(self, begin: float, end: float) -> None:
        """Count what of [begin, end] was not counted before."""
        if end <= begin:
            return
        spans = self._spans
        first = bisect.bisect_left(spans, begin, key=_end)
        last = bisect.bisect_right(spans, end, key=_begin)
        fresh = end - begin
        low, high = begin, end
        for a, b in spans[first:last]:
            fresh -= min(end, b) - max(begin, a)
            low, high = min(low, a), max(high, b)
        spans[first:last] = [(low, high)]
        if fresh > 0.0:
            self.seconds += fresh

    def forget_before(self, moment: float) -> None:
        """Drop what no run can reach back into any more."""
        keep = bisect.bisect_left(self._spans, moment, key=_end)
        del self._spans[:keep]

    def restart(self) -> None:
        """Forget all intervals: the monotonic clock is another one, or nobody was watched."""
        self._spans.clear()


def _begin(span: tuple[float, float]) -> float:
    return span[0]


def _end(span: tuple[float, float]) -> float:
    return span[1]


class Heard(Struct):
    """What flows of a live run: last request (boot clock) and last sighting (monotonic; None = not live now)."""

    request_boot: float
    seen_mono: float | None = None
    stopped: bool = False


class Clocks:
    """The running clocks and who drives them. All seconds; never goes back."""

    def __init__(self) -> None:
        self.covers: dict[str, Cover] = {GLOBAL: Cover()}
        self.runs: dict[str, Run] = {}
        self.sittings: dict[int, Sitting] = {}
        self.heard: dict[str, Heard] = {}
        """Of each live run, in the order they began."""
        self._open: dict[Process, int] = {}

    # ------------------------------------------------------------ cells (the store calls these)

    def put_run(self, run_id: str, run: Run | None) -> None:
        """A run as it now is; None = no longer remembered."""
        if run is None:
            self.runs.pop(run_id, None)
            self.heard.pop(run_id, None)
            return
        self.runs[run_id] = run
        if not run.live:
            self.heard.pop(run_id, None)

    def put_heard(self, run_id: str, request_boot: float | None) -> None:
        """When a live run last asked something, as it was before; None = it was not live."""
        self.heard.pop(run_id, None)
        if request_boot is not None:
            self.heard[run_id] = Heard(request_boot)

    def put_sitting(self, number: int, sitting: Sitting | None) -> None:
        """A sitting as it now is; None = no longer remembered."""
        old = self.sittings.pop(number, None)
        if old is not None and self._open.get(old.process) == number:
            del self._open[old.process]
        if sitting is not None:
            self.sittings[number] = sitting
            if not sitting.closed:
                self._open[sitting.process] = number

    # ------------------------------------------------------------ clocks

    def reading(self, scope: str) -> float:
        """The running clock of a scope in seconds; 0.0 for one that never ran."""
        cover = self.covers.get(scope)
        return cover.seconds if cover else 0.0

    def set_reading(self, scope: str, seconds: float) -> None:
        """Put a clock to a value read from disk; never back."""
        cover = self.covers.get(scope)
        if cover is None:
            self.covers[scope] = Cover(seconds)
        else:
            cover.seconds = max(cover.seconds, seconds)

    def drop_reading(self, scope: str) -> None:
        """A session is gone."""
        self.covers.pop(scope, None)

    def readings(self) -> dict[str, float]:
        """Every scope's running clock."""
        return {scope: cover.seconds for scope, cover in self.covers.items()}

    def sight(self, run: Run, mono: float) -> None:
        """The run's process was alive and not stopped at ``mono``: it lived since its last sighting (M6)."""
        heard = self.heard.get(run.id)
        if heard is None:
            return
        since = heard.seen_mono
        if since is not None and mono > since:
            self.covers[GLOBAL].add(since, mono)
            self._cover(run.session).add(since, mono)
        if since is None or mono > since:
            heard.seen_mono = mono
        heard.stopped = False

    def hear(self, run: Run, now: Now) -> None:
        """The run asked something: sighted, and not silent (M6)."""
        heard = self.heard.setdefault(run.id, Heard(now.boot))
        heard.request_boot = max(heard.request_boot, now.boot)
        self._cover(run.session)
        self.sight(run, now.mono)

    def lose_sight(self, run: Run, *, stopped: bool) -> None:
        """The run is not live for now: what passes until the next sighting does not count."""
        heard = self.heard.get(run.id)
        if heard is not None:
            heard.seen_mono = None
            heard.stopped = stopped

    def tidy(self) -> None:
        """Drop intervals that no live run can reach back into."""
        reach = [heard.seen_mono for heard in self.heard.values() if heard.seen_mono is not None]
        moment = min(reach, default=math.inf)
        for cover in self.covers.values():
            cover.forget_before(moment)

    def restart(self) -> None:
        """After a start of the daemon: nobody has been seen yet, so the gap counts for nobody (M6)."""
        for cover in self.covers.values():
            cover.restart()
        for heard in self.heard.values():
            heard.seen_mono = None

    def _cover(self, scope: str) -> Cover:
        cover = self.covers.get(scope)
        if cover is None:
            cover = self.covers[scope] = Cover()
        return cover

    # ------------------------------------------------------------ runs and sittings

    def live_runs(self, session: str | None = None) -> list[Run]:
        """Live runs in the order they began, of one session or of all."""
        found = [self.runs[run_id] for run_id in self.heard]
        return found if session is None else [run for run in found if run.session == session]

    def open_sitting(self, chain: tuple[Process, ...]) -> int | None:
        """The sitting that a process with these ancestors (itself first) belongs to (M5)."""
        for process in chain:
            number = self._open.get(process)
            if number is not None:
                return number
        return None

    def run_among(self, chain: tuple[Process, ...]) -> Run | None:
        """The live run of the nearest ancestor (itself first); of several the newest."""
        by_process = {run.process: run for run in self.live_runs()}
        for process in chain:
            run = by_process.get(process)
            if run is not None:
                return run
        return None

    def silent_at(self, run: Run, idle_s: float) -> float:
        """The moment (boot clock) at which the run's silence ends it; inf = never."""
        heard = self.heard.get(run.id)
        return heard.request_boot + idle_s if heard is not None else math.inf

    def next_silence(self, idle_s: float, before: float) -> Run | None:
        """The run whose silence ended it first, at or before ``before`` (boot clock)."""
        if not self.heard or idle_s == math.inf:
            return None
        run_id, heard = min(self.heard.items(), key=lambda pair: pair[1].request_boot)
        return self.runs[run_id] if heard.request_boot + idle_s <= before else None
