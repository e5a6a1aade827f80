"""What the state is made of: cells, each a key of a table with a frozen struct in it.

The journal writes cells down and the store holds them; both know their types from here.
"""

from __future__ import annotations

from typing import Any, Literal

from milk_client.wire import Report, SeenLine
from msgspec import Struct

from milkd.clocks import Run, Sitting
from milkd.config import Fading
from milkd.rules.percept import Gone, Group, Held, Link

Table = Literal[
    "percept",
    "archive",
    "edge",
    "engram",
    "run",
    "sitting",
    "reply",
    "seen",
    "pass",
    "meta",
    "file",
    "clock",
    "merged",
]


class Remembered(Struct, frozen=True, array_like=True):
    """The outcome of a change, without content, until it is acknowledged: a retry acts once."""

    outcome: bytes
    ack: int
    boot: float
    op: str = ""
    """What was asked; "" in files of the first days."""


class FileExtra(Struct, frozen=True, array_like=True):
    """What a scope's file holds that milkd does not know: top-level fields, and fields of its own block."""

    top: dict[str, bytes] = {}
    own: dict[str, bytes] = {}


class PassMark(Struct, frozen=True, array_like=True):
    """Where a scope's last pass stood on its running clock, and what it reported."""

    clock_s: float
    at: str
    report: Report | None = None
    number: int = 0
    """The event number of that pass (M5)."""


CELL_TYPES: dict[str, Any] = {
    "percept": Held,
    "archive": Gone,
    "edge": Link,
    "engram": Group,
    "run": Run,
    "sitting": Sitting,
    "reply": Remembered,
    "seen": SeenLine,
    "pass": PassMark,
    "meta": float,
    "file": FileExtra,
    "use": tuple[float, str],
    "clock": float,
    "heard": float,
    "merged": str,
    "fading": Fading,
}
"""What a cell of each table holds; the journal decodes by it."""

Effect = tuple[str, str, Any]
"""(table, key, value): the value that a cell takes, None = it is dropped."""
