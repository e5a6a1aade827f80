"""Rank over many percepts at once: the numbers that M8 and M21 read, a column each. Derived, never stored.

The columns choose a shortlist; what stands on it is gated and ordered by the rules themselves
(`milkd.rules.weight`), so a shortlist may be generous but never leaves out what belongs on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from milkd.config import Memory
from milkd.index import Slots
from milkd.rules import weight
from milkd.rules.percept import Held
from milkd.rules.present import Present

Numbers = NDArray[np.float64]

AUDIENCE = {"": 0, "primary": 1, "escalation": 2}
"""Who may see a percept (`consumer`), as a number."""
_ROOM = 1024
_NEAR = 1e-12
"""Relative slack of a shortlist: numpy's exp2 and math's may differ in the last bits."""
_COLUMNS = 6
_W, _AT, _LIVED, _UPDATED, _WORTH, _HIDDEN = range(_COLUMNS)


class Ranks:
    """The columns of one scope, by the slots of its index.

    They hold w (NaN = the slot is free), the point on the running clock at which w holds, the factor from
    running seconds to half-lives (0 = does not decay), updated_at, 1 + e, and the reading of the clock from
    which on the default gates of M21 hide the percept.
    """

    def __init__(self, *, is_global: bool) -> None:
        self._is_global = is_global
        self._table = _free_slots(_ROOM)
        self._audience: NDArray[np.uint8] = np.zeros(_ROOM, np.uint8)

    def put(self, slot: int, held: Held, numbers: Present) -> None:
        """Write down the numbers of the percept in a slot."""
        if slot >= len(self._audience):
            self._table = np.concatenate([self._table, _free_slots(len(self._audience))], axis=1)
            self._audience = np.concatenate([self._audience, np.zeros_like(self._audience)])
        record, knobs = held.record, numbers.knobs
        days = knobs.global_half_life_days if self._is_global else knobs.session_half_life_days
        fades = not record.core and not (self._is_global and record.w <= knobs.prune_threshold)
        self._table[:, slot] = (
            record.w,
            held.at_s,
            -1.0 / (days * weight.DAY_S) if fades else 0.0,
            held.updated_ts,
            weight.worth(record.evidence),
            numbers.hidden_at(held),
        )
        self._audience[slot] = AUDIENCE[record.consumer]

    def drop(self, slot: int) -> None:
        """A percept left its slot."""
        self._table[_W, slot] = math.nan
        self._table[_HIDDEN, slot] = -math.inf

    def slots(self) -> Slots:
        """The slots that hold a percept."""
        return np.flatnonzero(~np.isnan(self._table[_W]))

    def passing(self, slots: Slots | slice, audience: int | None, clock_s: float) -> NDArray[np.bool_]:
        """Which of some slots pass the default gates of M21 at a reading of the running clock.

        ``audience`` is the caller's number in `AUDIENCE`, None for one who sees all.
        """
        found: NDArray[np.bool_] = self._table[_HIDDEN, slots] >= clock_s
        if audience is not None:
            theirs = self._audience[slots]
            found &= (theirs == 0) | (theirs == audience)
        return found

    def seen(self, audience: int | None, clock_s: float) -> Slots:
        """All slots that pass the default gates of M21."""
        return np.flatnonzero(self.passing(slice(None), audience, clock_s))

    def by_rank(
        self, slots: Slots, clock_s: float, wall: float, knobs: Memory, first: int, least: float = 0.0
    ) -> Iterator[Slots]:
        """Those of ``slots`` whose `rank_score` (M8) is ``least`` or more, in portions of falling rank.

        A portion has ``first`` of them, the next twice as many, and so on; equal ranks stand in one portion,
        and each ranks above all of the next, up to rounding.
        """
        rank = self._rank(slots, clock_s, wall, knobs)
        if least > 0.0:
            enough = rank >= least - weight.TOLERANCE
            slots, rank = slots[enough], rank[enough]
        while len(slots) > first:
            edge = len(slots) - first
            lowest = np.partition(rank, edge)[edge]
            top = rank >= lowest - _NEAR * abs(lowest)
            yield slots[top]
            slots, rank = slots[~top], rank[~top]
            first *= 2
        if len(slots):
            yield slots

    def _rank(self, slots: Slots, clock_s: float, wall: float, knobs: Memory) -> Numbers:
        w, at, lived, updated, worth, _ = self._table[:, slots]
        fading = np.exp2(np.maximum(clock_s - at, 0.0) * lived)
        if self._is_global:
            floor = knobs.prune_threshold
            now = np.where(lived == 0.0, w, floor + (w - floor) * fading)
        else:
            now = w * fading
        age = np.maximum(wall - updated, 0.0)
        fresh = knobs.recency_boost * np.exp2(age * (-1.0 / (weight.DAY_S * knobs.recency_half_life_days)))
        rank: Numbers = now * (1.0 + fresh) * worth
        return rank


def _free_slots(count: int) -> Numbers:
    table = np.zeros((_COLUMNS, count), np.float64)
    table[_W] = math.nan
    table[_HIDDEN] = -math.inf
    return table
