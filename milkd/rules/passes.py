"""What a pass decides about one percept or edge, as values with their reasons (M13, M16, M17).

The order of the steps and the store they act on are `milkd.consolidation`'s; here are the decisions, so
that `explain` prints what the next pass obeys.
"""

from __future__ import annotations

from typing import Literal

from milk_client.wire import Edge, PerceptRecord
from msgspec.structs import replace

from milkd.config import Memory
from milkd.rules import weight
from milkd.rules.percept import unstamp

Standing = Literal["promote", "evidence", "contradiction", "weak"]
"""What a pass makes of a session percept: promoted, held back by lack of evidence, by a live
contradiction, or not strong enough to be considered."""


def strong(record: PerceptRecord, knobs: Memory) -> bool:
    """Whether a percept may be strong enough for promotion at some moment (M17).

    Under "add" the gate reads the present strength, which only falls, so this is the wider set.
    """
    confirmed = record.w_confirmed
    value = record.w if knobs.reinforcement == "add" or confirmed is None else confirmed
    return weight.at_least(value, knobs.promote_threshold)


def settled(record: PerceptRecord) -> bool:
    """Durable enough for promotion: core, the user's word, or corroborated in two sittings (M17)."""
    return record.core or record.producer == "user" or record.evidence >= weight.EVIDENCE_NEEDED


def standing(record: PerceptRecord, confirmed: float, blocked: bool, knobs: Memory) -> Standing:
    """How a session percept stands before the gate of M17; ``confirmed`` is the strength that it reads."""
    if not weight.at_least(confirmed, knobs.promote_threshold):
        return "weak"
    if not settled(record):
        return "evidence"
    return "contradiction" if blocked else "promote"


def may_corroborate(sitting: int, record: PerceptRecord) -> bool:
    """Whether a sitting may add evidence: it began after the last corroboration (M12).

    Both are event numbers; a percept never corroborated, or by an older version without a number, has 0.
    """
    return sitting > record.evidence_event


def may_act(edge: Edge, sitting: int) -> bool:
    """Whether an edge acts in a pass of this sitting: once a sitting, in three at most (M13)."""
    if edge.propagated >= weight.EDGE_SITTINGS:
        return False
    return edge.propagated == 0 or sitting > edge.propagated_event


def boosted(value: float) -> float:
    """A strength after a positive edge acted on it (M13)."""
    return min(1.0, value + weight.EDGE_BOOST)


def contradicted(value: float, producer: str, other_producer: str) -> float:
    """A strength after `contradicts` acted on it (M13).

    What the user said yields to no weaker producer, and to nobody below 0.40.
    """
    if producer != "user":
        return max(0.0, value - weight.EDGE_PENALTY)
    if weight.stronger(producer, other_producer):
        return value
    return min(value, max(weight.USER_FLOOR, value - weight.EDGE_PENALTY))


def merged(older: PerceptRecord, newer: PerceptRecord, reason: str, numbers: tuple[float, float]) -> PerceptRecord:
    """A global and a session percept that says the same, as one (M17).

    ``numbers`` are the larger ``w`` and ``w_confirmed`` as of now; ``reason`` is M14's (`longer`: the newer
    text is the longer one).
    """
    later = newer if newer.evidence_event > older.evidence_event else older
    return replace(
        older,
        content=newer.content if reason == "longer" else older.content,
        producer=newer.producer if weight.stronger(newer.producer, older.producer) else older.producer,
        consumer=older.consumer if older.consumer == newer.consumer else "",
        roles={**newer.roles, **older.roles},
        w=numbers[0],
        w_confirmed=numbers[1],
        updated_at=max(older.updated_at, newer.updated_at, key=unstamp),
        core=older.core or newer.core,
        evidence=max(older.evidence, newer.evidence),
        evidence_at=later.evidence_at,
        evidence_event=later.evidence_event,
        last_used_at=max(older.last_used_at, newer.last_used_at, key=unstamp),
    )
