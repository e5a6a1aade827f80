"""What is derived for one scope, the global one or a session: its index, its ranks, who is due when.

All of it follows from the living percepts of the scope and the knobs, so that replay and load need not know it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping

from milkd.index import Index
from milkd.order import Order
from milkd.ranking import Ranks
from milkd.rules import weight
from milkd.rules.passes import strong
from milkd.rules.percept import GLOBAL, Held, unstamp
from milkd.rules.present import Present


class Scope:
    """What is derived for one scope. ``numbers`` reads a percept as of now (M9).

    ``strong`` may be promoted if nothing holds it back (M17), ``touched`` changed since the last pass (M18),
    ``fading`` counts what decays, ``acting`` are the edges that may still act (M13). Pages are read from orders that
    hang on nothing but what a percept, edge or engram keeps: ``born``, ``let_go`` (the archive), ``edges``, ``groups``.
    """

    def __init__(self, name: str, numbers: Present) -> None:
        self.name = name
        self.is_global = name == GLOBAL
        self.living = Index()
        self.archived = Index()
        self.ranks = Ranks(is_global=self.is_global)
        self.core: set[str] = set()
        self.strong: set[str] = set()
        self.touched: set[str] = set()
        self.fading = 0
        self.acting: dict[str, None] = {}
        self.born = Order()
        self.let_go = Order()
        self.edges = Order()
        self.groups = Order()
        self.engrams: dict[str, str] = {}
        self._numbers = numbers
        self._horizon: list[tuple[float, str]] = []

    def enter(self, held: Held, *, indexed: bool) -> None:
        """A percept lives here, or lives on with other numbers; ``indexed``: its text is known here."""
        record = held.record
        if not indexed:
            self.living.add(record.id, record.content)
            self.born.put(record.id, unstamp(record.created_at))
        self.ranks.put(self.living.slot(record.id), held, self._numbers)
        self.touched.add(record.id)
        if not self.is_global and strong(record, self._numbers.knobs):
            self.strong.add(record.id)
        if record.core:
            self.core.add(record.id)
            return
        if self._fades(held):
            self.fading += 1
        heapq.heappush(self._horizon, (self._leaves_at(held), record.id))

    def leave(self, held: Held, *, keep_text: bool) -> None:
        """A percept lives here no longer, or will enter again with other numbers (``keep_text``)."""
        record = held.record
        if not keep_text:
            self.ranks.drop(self.living.remove(record.id, record.content))
            self.born.drop(record.id)
        self.touched.discard(record.id)
        self.strong.discard(record.id)
        self.core.discard(record.id)
        if not record.core and self._fades(held):
            self.fading -= 1

    def derive_anew(self, living: Iterable[Held]) -> None:
        """Other knobs are in force: what follows from them is made anew."""
        touched = self.touched
        self.touched = set()
        self._horizon.clear()
        self.strong.clear()
        self.core.clear()
        self.fading = 0
        for held in living:
            self.enter(held, indexed=True)
        self.touched = touched

    def due(self, percepts: Mapping[str, Held]) -> list[Held]:
        """Percepts that have reached their horizon: session ones to prune, globals to archive as stale.

        An entry of the horizon may be out of date (used, restated); it is looked at again where it now lies.
        """
        clock = self._numbers.reading(self.name)
        if len(self._horizon) > 2 * len(self.living) + 64:
            living = (percepts[percept_id] for percept_id in self.living)
            self._horizon = [(self._leaves_at(held), held.id) for held in living if not held.record.core]
            heapq.heapify(self._horizon)
        found: dict[str, Held] = {}
        again: dict[str, float] = {}
        while self._horizon and self._horizon[0][0] <= clock + 1e-3:
            _, percept_id = heapq.heappop(self._horizon)
            held = percepts.get(percept_id)
            if held is None or held.scope != self.name or held.record.core or percept_id in found:
                continue
            if self._ripe(held):
                found[percept_id] = held
            again[percept_id] = self._leaves_at(held)
        for percept_id, moment in again.items():
            if moment != math.inf:
                heapq.heappush(self._horizon, (moment, percept_id))
        return sorted(found.values(), key=lambda held: held.seq)

    def _fades(self, held: Held) -> bool:
        """Whether decay can lower it (M9)."""
        return not self.is_global or held.record.w > self._numbers.knobs.prune_threshold

    def _archive_s(self) -> float:
        return self._numbers.knobs.global_archive_after_days * weight.DAY_S

    def _leaves_at(self, held: Held) -> float:
        """The reading of the scope's clock at which a percept is to be pruned or archived."""
        return held.idle_from_s + self._archive_s() if self.is_global else self._numbers.fades_at(held)

    def _ripe(self, held: Held) -> bool:
        if self.is_global:
            return weight.at_least(self._numbers.idle_s(held), self._archive_s())
        return weight.at_most(self._numbers.present(held), self._numbers.knobs.prune_threshold)
