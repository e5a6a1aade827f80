"""Names in an order that stands still, and pages of them (`list`, `archivelist`, `export`).

A name has its place by a number that it keeps (when it was born, archived, made) and, among equals, by itself. So a
page can go on after a place where nothing is any more: what stays is on one page, once, whatever comes and goes.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from milk_client.errors import Invalid

Place: TypeAlias = tuple[float, str]
"""Where a name stands: its number, and the name."""

LOOKED_AT_MAX = 4000
"""Names that one page looks at: where few are wanted, a page is short, and the next one goes on from there."""
_FEW = 64


class Order:
    """Names by number and name. Coming and going costs a moment; the order is brought up to date when it is read."""

    def __init__(self) -> None:
        self._numbers: dict[str, float] = {}
        self._places: list[Place] = []
        """Sorted; holds places that were left, and doubles of what came back."""
        self._fresh: list[str] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def put(self, name: str, number: float) -> None:
        """A name stands here, by this number."""
        self._numbers[name] = number
        self._fresh.append(name)
        self._shrink()

    def drop(self, name: str) -> None:
        """A name, if it is here, stands here no longer."""
        self._numbers.pop(name, None)

    def place(self, name: str) -> Place:
        """The place of a name that is here."""
        return self._numbers[name], name

    def walk(self, after: Place | None, *, backwards: bool = False) -> Iterator[Place]:
        """The places after one, whether anything stands there or not; from the first (backwards: the last) on."""
        self._settle()
        places = self._places
        if backwards:
            steps = range((len(places) if after is None else bisect_left(places, after)) - 1, -1, -1)
        else:
            steps = range(0 if after is None else bisect_right(places, after), len(places))
        for step in steps:
            place = places[step]
            if place != after and self._numbers.get(place[1]) == place[0]:
                after = place
                yield place

    def _settle(self) -> None:
        self._shrink()
        if self._fresh:
            self._places += [self.place(name) for name in self._fresh if name in self._numbers]
            self._places.sort()
            self._fresh.clear()

    def _shrink(self) -> None:
        """Let go of what left, once that is the greater part."""
        if len(self._places) + len(self._fresh) > 2 * len(self._numbers) + _FEW:
            self._places.clear()
            self._fresh = list(self._numbers)


def page(
    orders: Sequence[Order], after: str, limit: int, wanted: Callable[[str], bool], *, backwards: bool = False
) -> tuple[list[str], str]:
    """A page of the names wanted of several orders as one, and what to go on after ("" = that was all).

    Raises Invalid for an ``after`` that no page gave.
    """
    place = _read(orders, after) if after else None
    found: list[str] = []
    steps = (order.walk(place, backwards=backwards) for order in orders)
    for looked_at, step in enumerate(heapq.merge(*steps, reverse=backwards)):
        wants = wanted(step[1])
        if place is not None and (looked_at == LOOKED_AT_MAX or (wants and len(found) == limit)):
            return found, f"{place[0]!r} {place[1]}"
        if wants:
            found.append(step[1])
        place = step
    return found, ""


def _read(orders: Sequence[Order], after: str) -> Place:
    for order in orders:
        if after in order:  # the id alone, as the version before gave it
            return order.place(after)
    number, _, name = after.partition(" ")
    with suppress(ValueError):
        if name and math.isfinite(float(number)):
            return float(number), name
    raise Invalid(f"after: {after[:60]!r} is not the `next` of a page", field="after")
