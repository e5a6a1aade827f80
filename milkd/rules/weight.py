"""Strength: birth, decay, reinforcement, evidence, rank (M1, M8, M9, M11, M12). Numbers in, numbers out.

Seconds are running seconds (M6) unless a name says otherwise; strengths lie in [0, 1].
"""

from __future__ import annotations

import math

from milkd.config import Memory

DAY_S = 86_400.0
TOLERANCE = 1e-9
"""Gates compare with it, so that 0.4 - 0.1 - 0.1 is at most 0.2 (M8)."""
EDGE_BOOST = 0.05
EDGE_PENALTY = 0.10
USER_FLOOR = 0.40
"""`contradicts` takes no percept of the user's below it (M13)."""
EDGE_SITTINGS = 3
"""An edge acts in as many sittings at most (M13)."""
EVIDENCE_NEEDED = 2
"""Corroborations that promotion asks of what is neither core nor the user's (M17)."""
UNPINNED = 0.9
"""Strength of a global that `unpin` leaves (M20)."""

_BIRTH = {"user": 0.9, "primary": 0.7, "escalation": 0.7, "system": 0.4}
_STANDING = {"user": 2, "primary": 1, "escalation": 1, "system": 0}


def birth(producer: str, core: bool) -> float:
    """Strength at birth (M1)."""
    return 1.0 if core else _BIRTH[producer]


def stronger(one: str, other: str) -> bool:
    """Whether producer ``one`` outranks ``other``: user > primary = escalation > system (M11)."""
    return _STANDING[one] > _STANDING[other]


def at_least(value: float, gate: float) -> bool:
    """value ≥ gate, within the tolerance of M8."""
    return value >= gate - TOLERANCE


def at_most(value: float, gate: float) -> bool:
    """value ≤ gate, within the tolerance of M8."""
    return value <= gate + TOLERANCE


def decayed(w: float, lived_s: float, knobs: Memory, *, is_global: bool) -> float:
    """``w`` after ``lived_s`` running seconds (M9). Never more than ``w``; a core percept is not asked.

    A session's percept fades towards 0; a global one towards ``prune_threshold``, and at or below that
    floor it is left alone.
    """
    if lived_s <= 0.0:
        return w
    if not is_global:
        return w * math.exp2(-lived_s / (knobs.session_half_life_days * DAY_S))
    floor = knobs.prune_threshold
    if w <= floor:
        return w
    return floor + (w - floor) * math.exp2(-lived_s / (knobs.global_half_life_days * DAY_S))


def lived_until(w: float, target: float, knobs: Memory, *, is_global: bool) -> float:
    """Running seconds until ``w`` has faded to ``target``; inf where it never does (M10: a closed form)."""
    if w <= target:
        return 0.0
    if not is_global:
        return math.log2(w / target) * knobs.session_half_life_days * DAY_S if target > 0 else math.inf
    floor = knobs.prune_threshold
    if target <= floor:
        return math.inf
    return math.log2((w - floor) / (target - floor)) * knobs.global_half_life_days * DAY_S


def reinforced(w: float, confirmed: float, knobs: Memory) -> tuple[float, float]:
    """Present ``w`` and ``w_confirmed`` after a restatement (M11). Neither is ever lowered."""
    if knobs.reinforcement == "add":
        risen = max(w, min(knobs.reconfirm_cap, w + knobs.reconfirm_boost))
        return risen, risen
    risen = max(confirmed, min(knobs.reconfirm_cap, confirmed + knobs.reconfirm_boost))
    return risen, risen


def recency(updated_ts: float, wall: float, knobs: Memory) -> float:
    """r of M8: a boost that halves every ``recency_half_life_days`` of wall clock since ``updated_at``."""
    age_days = max(0.0, wall - updated_ts) / DAY_S
    return knobs.recency_boost * math.exp2(-age_days / knobs.recency_half_life_days)


def worth(evidence: int) -> float:
    """1 + e of M8: what corroboration adds to the rank."""
    return 1.0 + 0.05 * min(evidence, 4)


def rank_score(w: float, evidence: int, updated_ts: float, wall: float, knobs: Memory) -> float:
    """w · (1 + r) · (1 + e) of M8, from the present ``w``. For order and eviction, never for a gate."""
    return w * (1.0 + recency(updated_ts, wall, knobs)) * worth(evidence)
