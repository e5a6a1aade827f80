"""The shape of the JSON files (M3, M4): cells -> text that a person reads, and back, field by field.

A field that milkd does not know is kept as the bytes that stood in the file and written back unchanged, at
every level. What cannot be read as a percept, edge or engram is returned with the reason, never dropped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from milk_client.wire import NOT_IDLE, Archived, Edge, Engram, PerceptRecord, Reason
from msgspec import Raw, Struct
from msgspec.structs import replace

from milkd.cells import FileExtra
from milkd.rules.percept import GLOBAL, Gone, Group, Held, Link, unstamp
from milkd.rules.present import Present

FORMAT = 1
"""Of the ``milkd`` block. A file of a higher one refuses the start: it knows what this version would lose."""

_ID = re.compile(r"[0-9A-Za-z_.:-]{1,64}")
T = TypeVar("T")


class Own(Struct):
    """The ``milkd`` block of a file."""

    format: int = FORMAT
    generation: int = 0
    clock_s: float | None = None


class Wrong(Struct, frozen=True):
    """A part of a file that could not be taken in: where, why, and its bytes."""

    where: str
    why: str
    raw: bytes


class Parsed(Struct):
    """A scope's file as read. Numbers hold as of ``own.clock_s`` (M3)."""

    own: Own
    percepts: list[tuple[PerceptRecord, dict[str, bytes]]]
    engrams: list[tuple[Engram, dict[str, bytes]]]
    edges: list[tuple[Edge, dict[str, bytes]]]
    extra: FileExtra
    wrong: list[Wrong]


class _Entry(Struct, frozen=True, omit_defaults=True):
    """An archive entry's own fields, as written."""

    reason: Reason
    at: str
    scope: str
    successor: str = ""
    at_s: float | None = None
    """The scope's clock at which ``percept.w`` holds; absent in files of others: as of the load."""


class NotAFile(ValueError):
    """The bytes are no JSON document of a scope."""


# ---------------------------------------------------------------- decoding

_object = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])


def _strict(kind: type[Struct]) -> msgspec.json.Decoder[Any]:
    strict = msgspec.defstruct(
        f"Strict{kind.__name__}", [], bases=(kind,), forbid_unknown_fields=True, kw_only=True, frozen=True
    )
    return msgspec.json.Decoder(strict)


_CHECK: dict[type, msgspec.json.Decoder[Any]] = {kind: _strict(kind) for kind in (PerceptRecord, Edge, Engram)}
_PLAIN: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (PerceptRecord, Edge, Engram, _Entry, Own)
}
_KNOWN: dict[type, frozenset[str]] = {
    kind: frozenset(field.encode_name for field in msgspec.structs.fields(kind))
    for kind in (PerceptRecord, Edge, Engram, _Entry, Own)
}


def _fields(raw: bytes | Raw, kind: type[T]) -> tuple[T, dict[str, bytes]]:
    """A struct, and the fields it does not know as raw bytes. Raises msgspec.DecodeError."""
    check = _CHECK.get(kind)
    if check is not None:
        try:
            check.decode(raw)
        except msgspec.ValidationError:
            pass
        else:
            return _PLAIN[kind].decode(raw), {}
    parts = _object.decode(raw)
    extra = {key: bytes(value) for key, value in parts.items() if key not in _KNOWN[kind]}
    if kind is PerceptRecord and "roles" in parts:
        try:
            msgspec.json.decode(parts["roles"], type=dict[str, str])
        except msgspec.ValidationError:
            # Somebody else's roles: kept as they are, not understood.
            extra["roles"] = bytes(parts.pop("roles"))
            raw = msgspec.json.encode(parts)
    return _PLAIN[kind].decode(raw), extra


def _each(raw: Raw | None, where: str, kind: type[T], wrong: list[Wrong]) -> Iterator[tuple[T, dict[str, bytes]]]:
    if raw is None:
        return
    try:
        items = _list.decode(raw)
    except msgspec.DecodeError as error:
        wrong.append(Wrong(where, str(error), bytes(raw)))
        return
    for number, item in enumerate(items):
        try:
            value, extra = _fields(item, kind)
            _check(value)
        except (msgspec.DecodeError, ValueError) as error:
            wrong.append(Wrong(f"{where}[{number}]", str(error), bytes(item)))
            continue
        yield value, extra


def _check(value: Any) -> None:
    """Raise ValueError for what is well formed but no percept or edge."""
    if isinstance(value, PerceptRecord):
        if not _ID.fullmatch(value.id):
            raise ValueError("id: is no id")
        if not value.content.strip():
            raise ValueError("content: is empty")
        for name in ("w", "w_confirmed"):
            number = getattr(value, name)
            if number is not None and not 0.0 <= number <= 1.0:
                raise ValueError(f"{name}: {number} is not in 0 to 1")
        if value.evidence < 0 or not 0.0 <= value.idle_seconds < math.inf:
            raise ValueError("evidence and idle_seconds: must be at least 0")
    elif isinstance(value, Edge) and value.source == value.target:
        raise ValueError("from and to: are the same percept")


def parse(data: bytes) -> Parsed:
    """A scope's file. Raises NotAFile where it is no JSON object at all; all else is told in ``wrong``."""
    try:
        top = _object.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAFile(str(error)) from None
    wrong: list[Wrong] = []
    try:
        own, own_extra = _fields(top.pop("milkd", Raw(b"{}")), Own)
    except msgspec.DecodeError as error:
        raise NotAFile(f"milkd: {error}") from None
    percepts = [
        (record if record.w_confirmed is not None else replace(record, w_confirmed=record.w), extra)
        for record, extra in _each(top.pop("percepts", None), "percepts", PerceptRecord, wrong)
    ]
    return Parsed(
        own=own,
        percepts=percepts,
        engrams=list(_each(top.pop("engrams", None), "engrams", Engram, wrong)),
        edges=list(_each(top.pop("edges", None), "edges", Edge, wrong)),
        extra=FileExtra({key: bytes(value) for key, value in top.items()}, own_extra),
        wrong=wrong,
    )


def held_from(
    record: PerceptRecord, extra: dict[str, bytes], scope: str, clock_s: float, global_s: float, seq: int
) -> Held:
    """A percept read from a file, in its place: its numbers hold as of ``clock_s``."""
    return Held(
        record=replace(record, idle_seconds=NOT_IDLE) if record.idle_seconds else record,
        scope=scope,
        at_s=clock_s,
        idle_from_s=global_s - record.idle_seconds,
        updated_ts=unstamp(record.updated_at),
        seq=seq,
        extra=extra,
    )


def parse_archive(data: bytes) -> tuple[list[tuple[Gone, list[Link]]], FileExtra, Own, list[Wrong]]:
    """`archive.json`: entries (``at_s`` NaN where none was written), the rest raw. Raises NotAFile."""
    try:
        top = _object.decode(data.removeprefix(b"\xef\xbb\xbf"))
        items = _list.decode(top.pop("archive", Raw(b"[]")))
        own, own_extra = _fields(top.pop("milkd", Raw(b"{}")), Own)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAFile(str(error)) from None
    wrong: list[Wrong] = []
    found: list[tuple[Gone, list[Link]]] = []
    for number, item in enumerate(items):
        try:
            found.append(_entry(item))
        except (msgspec.DecodeError, ValueError, KeyError) as error:
            wrong.append(Wrong(f"archive[{number}]", str(error), bytes(item)))
    return found, FileExtra({k: bytes(v) for k, v in top.items()}, own_extra), own, wrong


def _entry(item: Raw) -> tuple[Gone, list[Link]]:
    parts = _object.decode(item)
    record, extra = _fields(parts.pop("percept"), PerceptRecord)
    _check(record)
    edges = [_fields(edge, Edge) for edge in _list.decode(parts.pop("edges", Raw(b"[]")))]
    entry, entry_extra = _fields(msgspec.json.encode(parts), _Entry)
    if record.w_confirmed is None:
        record = replace(record, w_confirmed=record.w)
    at_s = math.nan if entry.at_s is None else entry.at_s
    held = held_from(record, extra, entry.scope, at_s, 0.0, 0)
    return Gone(held, entry.reason, entry.at, unstamp(entry.at), entry.successor, entry_extra), [
        Link(edge, 0, e) for edge, e in edges
    ]


# ---------------------------------------------------------------- encoding

_encode = msgspec.json.Encoder().encode


def indented(value: Any, extra: dict[str, bytes], depth: int) -> bytes:
    """A struct as indented JSON at a depth of two-space steps, with its raw fields at the end."""
    plain = _encode(value)
    if not extra.keys().isdisjoint(_KNOWN[type(value)]):  # somebody else's roles: once, and as they were
        plain = _encode({key: raw for key, raw in _object.decode(plain).items() if key not in extra})
    text = msgspec.json.format(plain, indent=2)
    if extra:
        # The raw bytes stay as they are, line breaks and all: only what is ours is indented.
        line = b"\n" + b"  " * depth
        head = text[:-2] if text.endswith(b"\n}") else text[:-1]
        tail = b",".join(line + b"  " + _encode(key) + b": " + raw for key, raw in extra.items())
        return head.replace(b"\n", line) + (b"," if head != b"{" else b"") + tail + line + b"}"
    return text.replace(b"\n", b"\n" + b"  " * depth) if depth else text


def unknown(extra: dict[str, bytes]) -> dict[str, str]:
    """Fields that milkd does not know, as a reply tells them."""
    return {key: raw.decode(errors="replace") for key, raw in extra.items()}


def percept_json(at: Present, held: Held, depth: int = 0) -> bytes:
    """A living percept as it stands in its file: numbers as of now (M3)."""
    return indented(at.record(held), held.extra, depth)


def engram_now(at: Present, group: Group, members: list[Held]) -> Engram:
    """An engram with its living members and their mean strength as of now (M2)."""
    mean = sum(at.present(held) for held in members) / len(members) if members else 0.0
    ids = [held.id for held in members]
    return Engram(group.id, group.label, mean, ids, group.created_at, group.updated_at)


def engram_json(at: Present, group: Group, members: list[Held], depth: int = 0) -> bytes:
    """An engram as it stands in its file."""
    return indented(engram_now(at, group, members), group.extra, depth)


def edge_json(link: Link, depth: int = 0) -> bytes:
    """An edge as it stands in its file."""
    return indented(link.edge, link.extra, depth)


def archived_entry(at: Present, gone: Gone, links: list[Link]) -> Archived:
    """An archive entry (M4): strength as of now, with the edges that come back with it (M19)."""
    held, edges = gone.held, [link.edge for link in links]
    return Archived(at.record(held), edges, gone.reason, gone.at, held.scope, gone.successor, unknown(held.extra))


def archived_json(at: Present, gone: Gone, links: list[Link], depth: int = 0) -> bytes:
    """An archive entry as it stands in the file; strength as of its scope's clock then (``at_s``)."""
    pad = b"  " * (depth + 1)
    held = gone.held
    edges = b",\n".join(pad + b"  " + edge_json(link, depth + 2) for link in links)
    entry = _Entry(gone.reason, gone.at, held.scope, gone.successor, at.reading(held.scope))
    rest = indented(entry, gone.extra, depth)
    percept = indented(at.record(held), held.extra, depth + 1)
    return (
        b"{\n" + pad + b'"percept": ' + percept + b",\n"
        + pad + b'"edges": ' + (b"[\n" + edges + b"\n" + pad + b"]" if links else b"[]") + b","
        + rest[1:]
    )  # fmt: skip


def document(parts: Iterable[tuple[str, Iterable[bytes]]], own: Own, extra: FileExtra) -> Iterator[bytes]:
    """A whole file in pieces: its lists, the ``milkd`` block, and the raw fields of others."""
    yield b"{\n"
    for name, items in parts:
        yield b'  "' + name.encode() + b'": ['
        separator = b"\n    "
        for item in items:
            yield separator + item
            separator = b",\n    "
        yield b"],\n" if separator == b"\n    " else b"\n  ],\n"
    yield b'  "milkd": ' + indented(own, extra.own, 1)
    for key, raw in extra.top.items():
        yield b",\n  " + _encode(key) + b": " + raw
    yield b"\n}\n"


__all__ = [
    "FORMAT",
    "GLOBAL",
    "NotAFile",
    "Own",
    "Parsed",
    "Wrong",
    "document",
    "held_from",
    "indented",
    "parse",
    "parse_archive",
]
