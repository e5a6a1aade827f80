"""What is forgotten, out of a file's bytes: whole JSON, damaged JSON, journals (M20). Bytes in, bytes out.

A whole JSON file loses the objects of those ids and any string that is a content, and keeps all else as it is
spelled. In a damaged one they are blanked where they stand.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from milkd import journal
from milkd.cells import Effect
from milkd.rules.percept import Gone


def cleaned(name: str, data: bytes, forgotten: Iterable[str], contents: Iterable[str] = ()) -> bytes:
    """As `scrubbed`, for a file of any kind."""
    # A copy that another program left has another name, a damaged one perhaps another head.
    if data.startswith(journal.MAGIC) or re.search(rf"(^|-){journal.JOURNAL}(\.\d+)?$", name):
        return _journal_without(data, set(forgotten), set(contents))
    return scrubbed(data, forgotten, contents)


def scrubbed(data: bytes, forgotten: Iterable[str], contents: Iterable[str] = ()) -> bytes:
    """A file's bytes without the percepts of those ids and without those contents.

    Whatever else stands in a whole JSON file keeps its spelling, what merely holds such a word included.
    """
    ids, texts = set(forgotten), set(contents)
    try:
        json.loads(data, object_pairs_hook=_unique)
        whole = data.decode(json.detect_encoding(data)).encode()
        clean = _without(whole, ids, texts)
        return data if clean == whole else msgspec.json.format(clean, indent=2)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return _blanked(data, ids, texts)


# ---------------------------------------------------------------- journals


def _journal_without(data: bytes, ids: set[str], texts: set[str]) -> bytes:
    """A journal without each record that holds a percept, and each damaged stretch in which its id or content stands.

    A record that names a percept may hold any earlier wording of it; one that merely mentions it stays.
    """
    needles = [word.encode("utf-8", "surrogatepass") for word in (*ids, *texts) if word]
    try:
        parts = journal.spans(data)
    except journal.JournalTooNew:
        parts = [(0, len(data), None)]
    clean = bytearray(data)
    for begin, end, effects in parts:
        if effects is None:
            goes = any(needle in data[begin:end] for needle in needles)
        else:
            goes = any(_holds(effect, ids, texts) for effect in effects)
        if goes:
            clean[begin:end] = bytes(end - begin)
    return bytes(clean)


def _holds(effect: Effect, ids: set[str], texts: set[str]) -> bool:
    table, key, cell = effect
    held = cell.held if isinstance(cell, Gone) else cell
    return table in ("percept", "archive") and (key in ids or (held is not None and held.record.content in texts))


class _Named(Struct):
    """What tells whose an object is."""

    id: Any = None
    source: Any = field(default=None, name="from")
    target: Any = field(default=None, name="to")
    percept: Raw = Raw()


_named = msgspec.json.Decoder(_Named).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_list = msgspec.json.Decoder(list[Raw]).decode


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("of a key that stands twice only one value would be seen")
    return found


def _without(raw: bytes, ids: set[str], texts: set[str]) -> bytes:
    """A JSON value without what is forgotten; the same bytes where nothing of it goes. Raises DecodeError."""
    head = raw.lstrip()[:1]
    if head == b"{":
        parts = {key: bytes(item) for key, item in _object(raw).items()}
        clean = {} if _is_one(raw, ids) else {key: _without(item, ids, texts) for key, item in parts.items()}
        inside = (msgspec.json.encode(key) + b":" + item for key, item in clean.items())
        return raw if clean == parts else b"{" + b",".join(inside) + b"}"
    if head == b"[":
        items = [bytes(item) for item in _list(raw)]
        left = [_without(item, ids, texts) for item in items if not _is_one(item, ids)]
        return raw if left == items else b"[" + b",".join(left) + b"]"
    return b'""' if head == b'"' and msgspec.json.decode(raw) in texts else raw


def _is_one(raw: bytes, ids: set[str]) -> bool:
    """Whether a JSON value is a percept of those ids, its entry in the archive, an edge at it, or its bare id."""
    head = raw.lstrip()[:1]
    if head == b"{":
        named = _named(raw)
        told = (named.id, named.source, named.target)
        return any(isinstance(name, str) and name in ids for name in told) or _is_one(bytes(named.percept), ids)
    return head == b'"' and msgspec.json.decode(raw) in ids


# ---------------------------------------------------------------- damaged JSON

_SHORT = {'"': b'"', "\\": b"\\", "/": b"/", "\b": b"b", "\f": b"f", "\n": b"n", "\r": b"r", "\t": b"t"}
# A string that is cut off ends with its line: one that lacks its end must not swallow the file.
_TOKEN = re.compile(rb'"(?>[^"\\\n]+|\\[^\n]?)*+"?|[\[\]{}:,]|[0-9A-Za-z_.-]+')
_INSIDE = re.compile(rb"[\[\]{}:,]|[0-9A-Za-z_.-]+")
_AFTER_STRING = re.compile(rb"[ \t\r\0]*+(?:[\n:,\]}]|\Z)")
_OPENING = {b"}": b"{", b"]": b"["}


def _blanked(data: bytes, ids: set[str], texts: set[str]) -> bytes:
    """Blank contents, in any way JSON may spell them, and the object in which an id is a value."""
    for text in filter(None, texts):
        data = re.sub(b"".join(_spellings(character) for character in text), lambda m: b" " * len(m[0]), data)
    named = {percept_id.encode() for percept_id in ids}
    if b"\\u" in data or any(name in data for name in named):
        clean = bytearray(data)
        for begin, end in _objects_of(data, named):
            clean[begin:end] = b" " * (end - begin)
        data = bytes(clean)
    return data


class _Open(Struct):
    """An object or list that has begun."""

    kind: bytes
    begin: int
    goes: bool = False


def _objects_of(data: bytes, named: set[bytes]) -> list[tuple[int, int]]:
    """Where in damaged JSON the objects stand that name one of these ids as a value, `successor` apart.

    One pass. A brace or bracket that is lost is missed where the next one could not stand otherwise; what has no end
    goes to the end of the file. Where it is not certain whose a value is, rather too much goes than too little.
    """
    found: list[tuple[int, int]] = []
    open_: list[_Open] = []
    standing = Counter[bytes]()

    def begun(kind: bytes, begin: int) -> None:
        open_.append(_Open(kind, begin))
        standing[kind] += 1

    def close(end: int) -> None:
        one = open_.pop()
        standing[one.kind] -= 1
        if one.goes:
            found.append((one.begin, end))

    before = word = key = b""
    word_begin = 0
    for kind, begin, end in _tokens(data):
        if kind in (b"{", b"["):
            if kind == b"{" and before == b"," and open_ and open_[-1].kind == b"{":
                close(begin)  # an object stands in a list or after a key: that one's end is lost
            begun(kind, begin)
        elif kind in _OPENING:
            outside = standing[_OPENING[kind]] - 1
            while standing[_OPENING[kind]] > outside >= 0:  # and what it encloses, which has lost its own end
                close(end)
        elif kind == b":":
            if not open_ or open_[-1].kind == b"[":
                begun(b"{", word_begin)  # a key stands in an object: its begin is lost
            key = word
        elif kind == b'"':
            word, word_begin = _plain(data[begin:end]), begin
            if before == b":" and word in named and key != b"successor":
                open_[-1].goes = True
        before = kind
    while open_:
        close(len(data))
    return found


def _tokens(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The brackets, colons and commas of damaged JSON, and its strings and bare words as `"`, with begin and end.

    A quote after which no JSON goes on is not the end of a string but the begin of one: what was read as a string was
    between two, and one quote before it is lost.
    """
    position = 0
    while (token := _TOKEN.search(data, position)) is not None:
        begin, position = token.span()
        kind = data[begin : begin + 1]
        closed = kind == b'"' and position - begin > 1 and data[position - 1 : position] == b'"'
        if closed and not _AFTER_STRING.match(data, position):
            position -= 1
            for inner in _INSIDE.finditer(data, begin, position):
                kind = inner[0] if inner[0] in b"[]{}:," else b'"'
                yield kind, *inner.span()
        else:
            yield (kind if kind in b"[]{}:," else b'"'), begin, position


def _plain(word: bytes) -> bytes:
    """A string or bare word without its quotes and escapes, as far as it can be read."""
    bare = word.strip(b'"')
    if b"\\" not in bare:
        return bare
    try:
        return str(json.loads(b'"' + bare + b'"')).encode("utf-8", "surrogatepass")
    except ValueError:
        return bare


def _spellings(character: str) -> bytes:
    """A pattern of all ways in which JSON may spell a character."""
    units = re.findall("....", character.encode("utf-16-be", "surrogatepass").hex())
    ways = [re.escape(character.encode("utf-8", "surrogatepass"))]
    if character in _SHORT:
        ways.insert(0, rb"\\" + re.escape(_SHORT[character]))
    ways.append(b"".join(rb"\\u(?i:%b)" % unit.encode() for unit in units))
    return b"(?:" + b"|".join(ways) + b")"
