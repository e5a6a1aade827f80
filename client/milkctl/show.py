"""What everything printed is made of: safe text, times in words, tables, percepts. Pure functions.

Contents come from anywhere, so nothing of them reaches the terminal but what can be seen: control
characters and escape sequences are spelt out.
"""

from __future__ import annotations

import shlex
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime

from milk_client.wire import Edge, Percept, PerceptRecord
from msgspec import Struct

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_JOINERS = "\u200c\u200d"
_SPACES = "\u00a0\u202f\u3000"
_PROSE_WIDTH = 100
_LEAST_COLUMN = 20


class Style(Struct, frozen=True):
    """How text is to look."""

    color: bool = False
    width: int = 0
    """Columns of the terminal; 0 = no terminal: nothing is wrapped."""
    now: float = 0.0
    """Seconds since 1970."""
    program: str = "milkctl"
    """How commands that are named begin."""

    def paint(self, text: str, *looks: str) -> str:
        """The text in colours, on a terminal."""
        if not self.color or not looks or not text:
            return text
        return f"\x1b[{';'.join(_CODES[look] for look in looks)}m{text}\x1b[0m"

    def command(self, *words: str) -> str:
        """A command to type."""
        return " ".join([self.program, *(word if word == "…" else shlex.quote(word) for word in words)])


# ---------------------------------------------------------------- safe text


def visible(text: str) -> str:
    """One line in which every character can be seen: nothing drives the terminal or hides."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelt(char) for char in text)


def visible_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _spelt(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if char in _JOINERS or char in _SPACES:
        return char
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def columns(text: str) -> int:
    """How many columns of a terminal a text without colours takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) or char in _JOINERS else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def short(percept_id: str) -> str:
    """An id as people read it."""
    return f"#{visible(percept_id[:8])}"


# ---------------------------------------------------------------- quantities


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 percept``, ``2 percepts``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def span(seconds: float) -> str:
    """A length of time in words, rounded to the last unit told: two units at most, one from ten of it up."""
    if seconds < 1:
        return "less than a second" if seconds > 0 else "none"
    finer = (*_UNITS[1:], _UNITS[-1])
    for (unit, name), (smaller, its_name) in zip(_UNITS, finer, strict=True):
        told_to = unit if seconds >= 10 * unit else smaller
        whole, rest = divmod(round(seconds / told_to) * told_to, unit)
        if whole:
            return count(whole, name) + (f" {count(rest // smaller, its_name)}" if rest else "")
    return count(round(seconds), "second")


def ago(stamp: str, now: float) -> str:
    """A point in time in words; the date where it is long ago."""
    if not stamp:
        return "never"
    try:
        then = datetime.fromisoformat(stamp)
        seconds = now - then.timestamp()
    except (ValueError, OverflowError):
        return visible(stamp)
    if seconds < -60 or seconds > 60 * 86400:
        return f"on {then.astimezone():%Y-%m-%d}"
    if seconds < 5:
        return "just now"
    unit, name = next((unit, name) for unit, name in _UNITS if seconds >= unit)
    return f"{count(int(seconds // unit), name)} ago"


def clock_time(stamp: str) -> str:
    """The time of day of a stamp, here."""
    try:
        return f"{datetime.fromisoformat(stamp).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError):
        return visible(stamp)


def size(number: float) -> str:
    """Bytes in words."""
    if number < 1024:
        return count(int(number), "byte")
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024 or unit == "GiB":
            break
    return f"{number:.1f} {unit}"


# ---------------------------------------------------------------- layout


def wrapped(text: str, style: Style, first: str = "", rest: str | None = None) -> list[str]:
    """Prose in lines of the terminal's width, ``first`` before the first one and ``rest`` before the others."""
    width = min(style.width, _PROSE_WIDTH) if style.width else _PROSE_WIDTH
    return _fold(
        text, max(width - columns(first), _LEAST_COLUMN), first, " " * columns(first) if rest is None else rest
    )


def _fold(text: str, width: int, first: str, rest: str) -> list[str]:
    # textwrap counts characters; a text of wide ones gets as many fewer in a line.
    wide = columns(text)
    room = width if wide <= len(text) else max(_LEAST_COLUMN // 2, width * len(text) // wide)
    lines = textwrap.wrap(text, room, break_on_hyphens=False, replace_whitespace=False, drop_whitespace=True) or [""]
    return [(first if number == 0 else rest) + line for number, line in enumerate(lines)]


Cell = str | tuple[str, ...]
"""A text, or a text and its looks."""


def table(rows: Iterable[Sequence[Cell]], style: Style, *, head: Sequence[str] = (), indent: str = "  ") -> list[str]:
    """Aligned columns; the last one is wrapped at the terminal's width."""
    body: list[Sequence[Cell]] = [*([[(title, "dim") for title in head]] if head else []), *rows]
    if not body:
        return []
    texts = [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in body]
    widths = [max(columns(row[n]) for row in texts if n < len(row)) for n in range(max(map(len, texts)))]
    lines: list[str] = []
    for row, plain in zip(body, texts, strict=True):
        start = indent
        for cell, text, width in zip(row[:-1], plain, widths, strict=False):
            start += _looks(cell, text, style) + " " * (width - columns(text) + 2)
        used = columns(indent) + sum(width + 2 for width in widths[: len(row) - 1])
        room = style.width - used
        parts = _fold(plain[-1], room, "", "") if style.width and room >= _LEAST_COLUMN else [plain[-1]]
        for number, part in enumerate(parts):
            lines.append(((start if number == 0 else " " * used) + _looks(row[-1], part, style)).rstrip())
    return lines


def _looks(cell: Cell, text: str, style: Style) -> str:
    return text if isinstance(cell, str) else style.paint(text, *cell[1:])


# ---------------------------------------------------------------- percepts


def strength(percept: PerceptRecord) -> str:
    """The present strength; core has no need of a number."""
    return "core" if percept.core else f"{percept.w:.2f}"


def place(percept: Percept) -> str:
    """Where a percept lies, in words."""
    return "global" if percept.scope == "global" else f"session {visible(percept.session)}"


def percept_rows(percepts: Iterable[Percept], style: Style, *, with_place: bool = False) -> list[list[Cell]]:
    """A row a percept: id, strength, who said it, when, (where,) what."""
    rows: list[list[Cell]] = []
    for percept in percepts:
        row: list[Cell] = [
            (short(percept.id), "cyan"),
            (strength(percept), "bold" if percept.core else "green" if percept.w >= 0.5 else "dim"),
            percept.producer,
            (ago(percept.updated_at, style.now), "dim"),
        ]
        if with_place:
            row.append(place(percept))
        rows.append([*row, visible(percept.content)])
    return rows


def other_end(edge: Edge, percept_id: str) -> tuple[str, str]:
    """An edge seen from one end: its relation in words, and the id of the other end."""
    if edge.source == percept_id:
        return edge.relation, edge.target
    passive = {"extends": "is extended by", "updates": "is updated by", "derives": "is derived into"}
    return passive.get(edge.relation, edge.relation), edge.source


def edge_text(edge: Edge, percept_id: str) -> str:
    """An edge of a percept in words."""
    relation, other = other_end(edge, percept_id)
    acted = f" (acted in {count(edge.propagated, 'sitting')})" if edge.propagated else ""
    return f"{relation} {short(other)}{acted}"
