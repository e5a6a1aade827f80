"""One table of every file that milkd writes under a home: `forget` walks it, and nothing else writes there.

memory/global.json, <session>.json, archive.json, state.json   the set (snapshot)
memory/.<name>.<generation>.tmp, .set.json                     a set being written
memory/journal, journal.new                                    effects since the set
memory/aside/…                                                 what could not be read, or was not milkd's
memory/before-milkd-<date>/…                                   a home of another program, as it was found
memory/….sync-conflict-…, …conflicted copy…                    not ours, but copies of ours: `forget` reaches them
run/lock, milkd.sock, events.sock, endpoint, milkd.log         no content ever
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from milkd import journal
from milkd.cells import Effect
from milkd.journal import sync_folder
from milkd.rules.percept import Gone

ASIDE = "aside"
BEFORE = "before-milkd-"
JOURNAL = "journal"
SET_MARK = ".set.json"
OWN_NAMES = frozenset({"global", "archive", "state"})
_CONFLICTED = re.compile(r"\.sync-conflict-\d{8}|conflicted copy|\(.*conflict.*\)", re.IGNORECASE)
"""How Syncthing, Dropbox, Nextcloud and others name the copy of a file that two machines changed."""


def write_file(path: Path, pieces: Iterable[bytes], seen: Callable[[bytes], None] = lambda _: None) -> int:
    """Write a file whole beside nobody's eyes: made anew with mode 0600 and synced. Returns its bytes.

    ``seen`` is given each piece as it is written. Raises OSError, with no half file left.
    """
    size = 0
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=1 << 16) as file:
            for piece in pieces:
                file.write(piece)
                seen(piece)
                size += len(piece)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return size


def replace_file(path: Path, data: bytes) -> None:
    """Put a file in place in one step: temporary in the same folder, sync, rename, sync the folder."""
    temporary = path.with_name(f".{path.name}.tmp")
    write_file(temporary, [data])
    os.replace(temporary, path)
    sync_folder(path.parent)


def set_aside(memory: Path, name: str, data: bytes, date: str) -> Path:
    """Keep bytes that could not be taken in, under a dated name that nothing else has. Returns where."""
    folder = memory / ASIDE
    folder.mkdir(mode=0o700, exist_ok=True)
    stem = f"{date}-{name}"
    path = folder / stem
    number = 1
    while path.exists():
        if path.read_bytes() == data:
            return path
        number += 1
        path = folder / f"{stem}.{number}"
    replace_file(path, data)
    return path


def is_conflicted_copy(name: str) -> bool:
    """Whether a synchronising program left this file because two machines had changed it."""
    return bool(_CONFLICTED.search(name))


def conflicted_copies(memory: Path) -> list[Path]:
    """Those copies under ``memory``: never read, but `forget` reaches them."""
    return sorted(path for path in memory.iterdir() if path.is_file() and is_conflicted_copy(path.name))


def keepsakes(memory: Path) -> list[Path]:
    """Files that hold content and are not part of the set or the journal: copies and what was set aside."""
    folders = [memory / ASIDE, *memory.glob(f"{BEFORE}*")]
    return sorted(path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file())


def lying_about(memory: Path) -> list[str]:
    """Sentences about files that lie beside ours: set aside, or left by a synchronising program."""
    told = []
    if copies := conflicted_copies(memory):
        names = ", ".join(path.name for path in copies)
        told.append(f"copies of another program lie beside the files and are not read: {names}")
    if kept := keepsakes(memory):
        told.append(f"{len(kept)} file(s) are set aside under memory/")
    return told


def sizes(memory: Path) -> dict[str, int]:
    """Each file under ``memory`` with its bytes, for `status`."""
    found = {}
    for path in sorted(memory.rglob("*")):
        try:
            if path.is_file():
                found[str(path.relative_to(memory))] = path.stat().st_size
        except FileNotFoundError:
            continue  # a temporary that has just been renamed
    return found


# ---------------------------------------------------------------- forgetting


def scrub(memory: Path, ids: Iterable[str], contents: Iterable[str]) -> int:
    """Remove percepts from every keepsake and conflicted copy (M20); returns how many files changed.

    A JSON file loses the objects of those ids and any string that is a content; in a damaged one the bytes
    are searched and blanked.
    """
    wanted, texts = set(ids), set(contents)
    changed = 0
    for path in [*keepsakes(memory), *conflicted_copies(memory)]:
        data = path.read_bytes()
        clean = cleaned(path.name, data, wanted, texts)
        if clean != data:
            replace_file(path, clean)
            changed += 1
    return changed


def cleaned(name: str, data: bytes, forgotten: Iterable[str], contents: Iterable[str] = ()) -> bytes:
    """As `scrubbed`, for a file of any kind."""
    # A copy that another program left has another name, a damaged one perhaps another head.
    if data.startswith(journal.MAGIC) or re.search(rf"(^|-){JOURNAL}(\.\d+)?$", name):
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


# A string that is cut off ends with its line: one that lacks its end must not swallow the file.
_STRING = rb'"(?:[^"\\\n]|\\[^\n]?)*(?:"|(?=\n)|\Z)'
_FLAT = rb'(?>%b|[^{}"]+)' % _STRING
_VALUE = rb'(?<!"successor":)(?<!"successor": )(?:(?<=:)|(?<=: ))"%b"'
_AROUND = rb"\{(?:%b|\{%b*+\})*?%b(?:%b|\{%b*+\}?)*+\}?" % (_FLAT, _FLAT, _VALUE, _FLAT, _FLAT)
"""The object in which an id is a value, as far as it goes, with objects in it (roles); braces in strings are none."""
_SHORT = {'"': b'"', "\\": b"\\", "/": b"/", "\b": b"b", "\f": b"f", "\n": b"n", "\r": b"r", "\t": b"t"}


def _blanked(data: bytes, ids: set[str], texts: set[str]) -> bytes:
    """Blank contents, in any way JSON may spell them, and the object around an id."""
    for text in filter(None, texts):
        data = re.sub(b"".join(_spellings(character) for character in text), _blank, data)
    for percept_id in ids:
        around = _AROUND.replace(b"%b", re.escape(percept_id.encode()))
        # A brace in a string begins no object; but where a quote is lost, strings are not what they seem.
        data = re.sub(_STRING + b"|(?P<one>" + around + b")", lambda m: _blank(m) if m["one"] else m[0], data)
        data = re.sub(around, _blank, data)
    return data


def _blank(found: re.Match[bytes]) -> bytes:
    return b" " * len(found[0])


def _spellings(character: str) -> bytes:
    """A pattern of all ways in which JSON may spell a character."""
    units = re.findall("....", character.encode("utf-16-be", "surrogatepass").hex())
    ways = [re.escape(character.encode("utf-8", "surrogatepass"))]
    if character in _SHORT:
        ways.insert(0, rb"\\" + re.escape(_SHORT[character]))
    ways.append(b"".join(rb"\\u(?i:%b)" % unit.encode() for unit in units))
    return b"(?:" + b"|".join(ways) + b")"
