"""The nouns of the memory (M1, M2, M4, M5), as the daemon holds them.

What stands in a file is ``PerceptRecord``, ``Edge``, ``Engram`` of `milk_client.wire`; here each is held
together with its place, the point on a running clock at which its numbers hold, and the fields that milkd
does not know (raw JSON, so that they survive unchanged, M3). All are frozen: a change makes another one,
so that a snapshot may read a copied list of references while the core goes on.
"""

from __future__ import annotations

from datetime import UTC, datetime

from milk_client.wire import Archived, Edge, Engram, PerceptRecord, Reason
from msgspec import Struct

GLOBAL = "global"
"""The name of the global scope; no session may be called so (M3)."""

__all__ = ["GLOBAL", "Archived", "Edge", "Engram", "Gone", "Group", "Held", "Link", "Now", "PerceptRecord"]


class Now(Struct, frozen=True, array_like=True):
    """The clocks at one moment, in seconds: read once a request by the roof, handed down."""

    wall: float
    """Unix time; may jump."""
    mono: float
    """Monotonic, stops while the machine is suspended (M6)."""
    boot: float
    """Monotonic, goes on while the machine is suspended (silence, M6)."""


class Held(Struct, frozen=True, array_like=True, gc=False):
    """A percept in its place.

    ``record.w`` holds as of ``at_s`` on the running clock of ``scope``; ``idle_from_s`` is the point of the
    global running clock at which a global's idle time was nought (M9). ``seq`` is the order of birth.
    """

    record: PerceptRecord
    scope: str
    at_s: float
    idle_from_s: float
    updated_ts: float
    seq: int
    extra: dict[str, bytes] = {}

    @property
    def id(self) -> str:
        """The percept's id."""
        return self.record.id


class Gone(Struct, frozen=True, array_like=True, gc=False):
    """An archived percept (M4). Its edges stay in the store, out of force (M19)."""

    held: Held
    reason: Reason
    at: str
    at_ts: float
    successor: str = ""
    extra: dict[str, bytes] = {}


class Link(Struct, frozen=True, array_like=True, gc=False):
    """An edge with the order in which it was made; in force while both ends live (M19)."""

    edge: Edge
    seq: int
    extra: dict[str, bytes] = {}

    @property
    def key(self) -> str:
        """What makes it the same edge: the ordered pair and the relation (M2)."""
        return edge_key(self.edge.source, self.edge.target, self.edge.relation)


class Group(Struct, frozen=True, array_like=True, gc=False):
    """An engram in its scope. Its members are the living percepts that name it (M2)."""

    id: str
    label: str
    scope: str
    created_at: str
    updated_at: str
    extra: dict[str, bytes] = {}


def edge_key(source: str, target: str, relation: str) -> str:
    """The key of an edge in the store."""
    return f"{source} {target} {relation}"


def stamp(wall: float) -> str:
    """Unix time -> RFC 3339 UTC with microseconds."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unstamp(text: str) -> float:
    """RFC 3339 -> Unix time; 0.0 where the text is not a time (then it counts as long ago).

    A time without a zone is taken as UTC.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
