"""A percept's numbers as of a moment (M9, M10): closed forms of a stored point and the running clocks."""

from __future__ import annotations

import math
from collections.abc import Callable

from milk_client.wire import NOT_IDLE, PerceptRecord
from msgspec.structs import replace

from milkd.config import Memory
from milkd.rules import passes, weight
from milkd.rules.percept import GLOBAL, Held


class Present:
    """Reads percepts as of the running clocks that ``reading`` (scope -> seconds) tells.

    The store reads the present by it; a snapshot, off the core thread, the moment at which it was cut.
    """

    def __init__(self, knobs: Memory, reading: Callable[[str], float]) -> None:
        self.knobs = knobs
        self.reading = reading

    def present(self, held: Held) -> float:
        """Strength now (M9)."""
        if held.record.core:
            return held.record.w
        lived = self.reading(held.scope) - held.at_s
        return weight.decayed(held.record.w, lived, self.knobs, is_global=held.scope == GLOBAL)

    def confirmed(self, held: Held) -> float:
        """The strength that promotion reads: as confirmed, or under "add" the present one (M11, M17)."""
        if self.knobs.reinforcement == "add" or held.record.w_confirmed is None:
            return self.present(held)
        return held.record.w_confirmed

    def idle_s(self, held: Held) -> float:
        """Global running seconds since a global's last use; 0 in a session (M9)."""
        if held.scope != GLOBAL:
            return 0.0
        return max(0.0, self.reading(GLOBAL) - held.idle_from_s)

    def fades_at(self, held: Held) -> float:
        """The point on its session's running clock at which a percept reaches the pruning threshold."""
        target = self.knobs.prune_threshold + weight.TOLERANCE
        return held.at_s + weight.lived_until(held.record.w, target, self.knobs, is_global=False)

    def hidden_at(self, held: Held) -> float:
        """The reading of its running clock from which on the default gates of M21 hide a percept.

        inf = never, -inf = now already. It stands still while time passes (M10).
        """
        record, prune = held.record, self.knobs.prune_threshold
        by_default = held.scope == GLOBAL or record.producer == "user"
        limit = (prune if by_default else self.knobs.min_confidence) - weight.TOLERANCE
        if held.scope == GLOBAL or record.core:
            return math.inf if record.w >= limit else -math.inf
        # Under "add" the confirmed strength fades with the present one, and spares nothing at the threshold.
        if self.knobs.reinforcement == "add" or not self.spared(held):
            limit = max(limit, prune + weight.TOLERANCE)
        if record.w < limit:
            return -math.inf
        return held.at_s + weight.lived_until(record.w, limit, self.knobs, is_global=False)

    def lives(self, held: Held) -> bool:
        """Whether a percept is among the living now (M9): swept or not makes no difference."""
        if held.scope == GLOBAL or held.record.core:
            return True
        if not weight.at_most(self.present(held), self.knobs.prune_threshold):
            return True
        return self.spared(held)

    def spared(self, held: Held) -> bool:
        """Strong enough for M17 and held back at most by a contradiction: not pruned (M9)."""
        return passes.settled(held.record) and weight.at_least(self.confirmed(held), self.knobs.promote_threshold)

    def as_of_now(self, held: Held) -> Held:
        """The same percept with its strengths as of now: from here on it may fade under other knobs."""
        if held.record.core:
            return held
        record = replace(held.record, w=self.present(held), w_confirmed=self.confirmed(held))
        return replace(held, record=record, at_s=self.reading(held.scope))

    def record(self, held: Held) -> PerceptRecord:
        """The record with its numbers as of now, as it stands in a file (M3)."""
        return replace(
            held.record,
            w=self.present(held),
            w_confirmed=self.confirmed(held),
            idle_seconds=self.idle_s(held) or NOT_IDLE,
        )
