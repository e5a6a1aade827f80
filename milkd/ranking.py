"""Rank over many percepts at once: the numbers that M8 and M21 read, a column each. Derived, never stored.

The columns choose a shortlist; what stands on it is gated and ordered by the rules themselves
(`milkd.rules.weight`), so a shortlist may be generous but never leaves out what belongs on it.

A strength that fades is a number that stands still times one that is the same for all (M10): w at a point on
the clock, written as of a base point, times 2^(-time since the base). Recency likewise. So the rank of
thousands costs a few multiplications, and no exponential but two.
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
"""Relative slack of a shortlist, for rounding."""
_FAR = 400.0
"""Half-lives between a base and now after which the columns are written anew: far from what a float can hold."""
_STORED = 5
_W, _AT, _UPDATED, _WORTH, _HIDDEN = range(_STORED)


class Ranks:
    """The columns of one scope, by the slots of its index.

    Stored, as the percept has them: w (NaN = the slot is free), the point on the running clock at which it
    holds, updated_at, 1 + e, and the reading of the clock from which on the default gates of M21 hide it.
    Made of these, as of a base: ``still`` (what does not fade) and ``fading``, both times 1 + e, and ``fresh``.
    """

    def __init__(self, *, is_global: bool) -> None:
        self._is_global = is_global
        self._table = _free_slots(_ROOM)
        self._made: Numbers = np.zeros((3, _ROOM), np.float64)
        self._core: NDArray[np.bool_] = np.zeros(_ROOM, np.bool_)
        self._audience: NDArray[np.uint8] = np.zeros(_ROOM, np.uint8)
        self._base = (0.0, 0.0)
        self._knobs: Memory | None = None
        self._stale: set[int] = set()
        """Slots whose stored numbers are newer than what is made of them."""

    def put(self, slot: int, held: Held, numbers: Present) -> None:
        """Write down the numbers of the percept in a slot."""
        if slot >= len(self._core):
            self._table = np.concatenate([self._table, _free_slots(len(self._core))], axis=1)
            self._made = np.concatenate([self._made, np.zeros_like(self._made)], axis=1)
            self._core = np.concatenate([self._core, np.zeros_like(self._core)])
            self._audience = np.concatenate([self._audience, np.zeros_like(self._audience)])
        record = held.record
        self._table[:, slot] = (
            record.w,
            held.at_s,
            held.updated_ts,
            weight.worth(record.evidence),
            numbers.hidden_at(held),
        )
        self._core[slot] = record.core
        self._audience[slot] = AUDIENCE[record.consumer]
        self._stale.add(slot)

    def drop(self, slot: int) -> None:
        """A percept left its slot."""
        self._table[_W, slot] = math.nan
        self._table[_HIDDEN, slot] = -math.inf

    def slots(self) -> Slots:
        """The slots that hold a percept."""
        return np.flatnonzero(~np.isnan(self._table[_W]))

    def passing(self, slots: Slots, clock_s: float) -> NDArray[np.bool_]:
        """Which of some slots pass the default gates of M21 at a reading of the running clock."""
        found: NDArray[np.bool_] = self._table[_HIDDEN].take(slots) >= clock_s
        return found

    def seen(self, audience: int | None, clock_s: float) -> NDArray[np.bool_]:
        """For each slot whether what it holds passes the default gates of M21 and is for a caller's eyes.

        ``audience`` is the caller's number in `AUDIENCE`, None for one who sees all.
        """
        found: NDArray[np.bool_] = self._table[_HIDDEN] >= clock_s
        if audience is not None:
            found &= (self._audience == 0) | (self._audience == audience)
        return found

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
        fades_s, stales_s = self._half_lives(knobs)
        clock_base, wall_base = self._base
        faded, staled = (clock_s - clock_base) / fades_s, (wall - wall_base) / stales_s
        if self._knobs is not knobs or abs(faded) > _FAR or abs(staled) > _FAR:
            self._base, self._knobs = (clock_s, wall), knobs
            self._make(slice(None))
            faded = staled = 0.0
        elif self._stale:
            self._make(np.fromiter(self._stale, np.int64))
        self._stale.clear()
        still, fading, fresh = self._made
        rank: Numbers = fading.take(slots)
        rank *= math.exp2(-faded)
        rank += still.take(slots)
        boost = fresh.take(slots)
        boost *= math.exp2(-staled)
        np.minimum(boost, knobs.recency_boost, out=boost)  # an update in the future is of now
        boost += 1.0
        rank *= boost
        return rank

    def _make(self, chosen: slice | Slots) -> None:
        """Write what is made of the stored columns, as of the base."""
        assert self._knobs is not None
        knobs = self._knobs
        fades_s, stales_s = self._half_lives(knobs)
        clock_base, wall_base = self._base
        w, at, updated, worth, _ = self._table[:, chosen]
        floor = knobs.prune_threshold if self._is_global else 0.0
        stays = self._core[chosen] | ((w <= floor) if self._is_global else False)
        fades = np.exp2(np.clip((at - clock_base) / fades_s, -2 * _FAR, 2 * _FAR))
        self._made[0, chosen] = np.where(stays, w, floor) * worth
        self._made[1, chosen] = np.where(stays, 0.0, (w - floor) * fades) * worth
        stales = np.exp2(np.clip((updated - wall_base) / stales_s, -2 * _FAR, 2 * _FAR))
        self._made[2, chosen] = knobs.recency_boost * stales

    def _half_lives(self, knobs: Memory) -> tuple[float, float]:
        days = knobs.global_half_life_days if self._is_global else knobs.session_half_life_days
        return days * weight.DAY_S, knobs.recency_half_life_days * weight.DAY_S


def _free_slots(count: int) -> Numbers:
    table = np.zeros((_STORED, count), np.float64)
    table[_W] = math.nan
    table[_HIDDEN] = -math.inf
    return table
