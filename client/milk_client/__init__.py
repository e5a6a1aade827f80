"""The thin client of milkd: needs pyzmq and msgspec, imports nothing of the daemon.

with Milk(session="myproject") as milk:
    milk.record("The user prefers uv over pip", producer="user")
    print(milk.inject("set up the project").text)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from ._calls import Block, Recording, Ref
from ._sync import Milk, Tool
from .errors import (
    Ambiguous,
    Invalid,
    MilkError,
    NoDaemon,
    NotFound,
    Overloaded,
    Refused,
    StorageFull,
    Timeout,
    TooLarge,
    UnknownRun,
    VersionMismatch,
)
from .wire import VERSION as __version__
from .wire import Archived, Conflict, Edge, Engram, Event, Explained, Near, Percept, Report, Shown, Statused

if TYPE_CHECKING:
    from ._aio import AsyncMilk
    from .events import Events, watch

__all__ = [
    "Ambiguous",
    "Archived",
    "AsyncMilk",
    "Block",
    "Conflict",
    "Edge",
    "Engram",
    "Event",
    "Events",
    "Explained",
    "Invalid",
    "Milk",
    "MilkError",
    "Near",
    "NoDaemon",
    "NotFound",
    "Overloaded",
    "Percept",
    "Recording",
    "Ref",
    "Refused",
    "Report",
    "Shown",
    "Statused",
    "StorageFull",
    "Timeout",
    "TooLarge",
    "Tool",
    "UnknownRun",
    "VersionMismatch",
    "__version__",
    "errors",
    "watch",
]


def __getattr__(name: str) -> Any:
    """What few programs need is loaded when it is asked for: asyncio alone doubles the cost of an import."""
    if name == "AsyncMilk":
        from ._aio import AsyncMilk

        return AsyncMilk
    if name in ("Events", "watch"):
        from . import events

        return getattr(events, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
