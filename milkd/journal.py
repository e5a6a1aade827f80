"""The journal: what changed since the last snapshot, on disk before anybody is told (M7, M16.7).

A record holds effects (cells as they now are), not requests: replay runs no rule, and replaying a record
twice changes nothing. The file is preallocated, so that a sync writes data alone.

    file    = header, records …, zeros
    header  = b"MILKJRNL" · u32 version · u32 crc32 of the version
    record  = u32 length · u32 crc32 of (sequence number + payload) · u64 sequence number · payload
    payload = msgpack list of [table, key, cell or nil]
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from milkd.cells import CELL_TYPES, Effect

VERSION = 1
JOURNAL = "journal"
"""Its name."""
MAGIC = b"MILKJRNL"
_HEADER = struct.Struct("<8sII")
_RECORD = struct.Struct("<IIQ")
_CHUNK = 1 << 20
_MAX_RECORD = 1 << 28


class JournalTooNew(Exception):
    """A later version of milkd wrote this journal; it must not be read or overwritten by this one."""


class Replayed(Struct):
    """What was found in a journal: records in order, where the next one goes, and what was wrong."""

    records: list[tuple[int, list[Effect]]]
    end: int
    problem: str = ""
    """"" where the journal ended as a crash leaves it; else the middle of it is damaged."""
    starts: list[int] = []
    """Where each record begins, in bytes."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, str, msgspec.Raw]]).decode
_cells: dict[str, Callable[[Any], Any]] = {
    table: msgspec.msgpack.Decoder(kind | None).decode for table, kind in CELL_TYPES.items()
}


class Journal:
    """The open journal. For the core thread; appends are durable when ``sync`` returns."""

    def __init__(self, path: Path, *, next_number: int = 1) -> None:
        self.path = path
        self.next_number = next_number
        self.end = _HEADER.size
        self.bytes_written = 0
        self._starts: list[tuple[int, int]] = []
        self._allocated = 0
        self._descriptor = -1
        self._named = True

    def read(self) -> Replayed:
        """All records there are; leaves the journal ready to append after them. Makes the file if absent.

        Raises JournalTooNew, OSError.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        if len(data) < _HEADER.size or not any(data):  # new, or a crash was quicker than its header
            self._start_file(self.path)
            self._use(_opened(self.path))
            return Replayed([], self.end)
        replayed = scan(data)
        if replayed.records:
            self.next_number = max(self.next_number, replayed.records[-1][0] + 1)
        self._use(_opened(self.path))
        self._starts = list(zip((number for number, _ in replayed.records), replayed.starts, strict=True))
        self.end = replayed.end
        return replayed

    def append(self, effects: list[Effect]) -> int:
        """Write one record, durable when this returns; returns its sequence number.

        Raises OSError (full disk, broken disk), with the record taken back.
        """
        payload = _encode(effects)
        number = struct.pack("<Q", self.next_number)
        record = _RECORD.pack(len(payload), zlib.crc32(number + payload), self.next_number) + payload
        try:
            self._sync_name()
            self._reserve(len(record) + _RECORD.size)
            _write_all(self._descriptor, record, self.end)
            _sync(self._descriptor)
        except OSError:
            self._take_back()
            raise
        self._starts.append((self.next_number, self.end))
        self.end += len(record)
        self.bytes_written += len(record)
        self.next_number += 1
        return self.next_number - 1

    def compact(self, covered: int) -> None:
        """Start a new file with the records after ``covered`` alone; the old one is gone when this returns.

        The bytes are copied, not read anew: it costs as much as what is kept. Raises OSError, with the old
        journal still in use, or with the new one, whose name the next append makes durable first.
        """
        kept = [(number, start) for number, start in self._starts if number > covered]
        begin = kept[0][1] if kept else self.end
        tail = os.pread(self._descriptor, self.end - begin, begin)
        fresh, old = self.path.with_name(self.path.name + ".new"), self._descriptor
        try:
            self._start_file(fresh, tail)
            descriptor = _opened(fresh)
            try:
                os.replace(fresh, self.path)
            except OSError:
                os.close(descriptor)
                raise
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._use(descriptor)
        os.close(old)
        self._starts = [(number, start - begin + _HEADER.size) for number, start in kept]
        self.end = _HEADER.size + len(tail)
        self._named = False
        self._sync_name()

    def close(self) -> None:
        """Close the file; nothing is pending."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _start_file(self, path: Path, records: bytes = b"") -> None:
        version = struct.pack("<I", VERSION)
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _allocate(descriptor, 0, _CHUNK + len(records))
            _write_all(descriptor, _HEADER.pack(MAGIC, VERSION, zlib.crc32(version)) + records, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)

    def _use(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._allocated = os.fstat(descriptor).st_size
        self.end = _HEADER.size

    def _sync_name(self) -> None:
        """Where a file has just taken the journal's name: without this a crash may bring the old one back."""
        if not self._named:
            sync_folder(self.path.parent)
            self._named = True

    def _reserve(self, size: int) -> None:
        if self.end + size > self._allocated:
            more = max(_CHUNK, size)
            _allocate(self._descriptor, self._allocated, more)
            os.fsync(self._descriptor)
            self._allocated += more

    def _take_back(self) -> None:
        """After a failed write: what may stand there must not be read as a record."""
        try:
            _write_all(self._descriptor, b"\0" * _RECORD.size, self.end)
        except OSError:
            # The same disk refuses this too. The next append writes over the same place; if none comes,
            # the record has no reply that anybody saw.
            return


def scan(data: bytes) -> Replayed:
    """The records of a journal's bytes. A torn end is what a crash leaves; damage before that is told."""
    if len(data) < _HEADER.size or not any(data):
        return Replayed([], _HEADER.size)
    magic, version, _ = _HEADER.unpack_from(data)
    if magic == MAGIC and version > VERSION:
        raise JournalTooNew(f"journal of version {version}; this milkd reads up to {VERSION}")
    problem = "" if magic == MAGIC else "the header is damaged"
    records: list[tuple[int, list[Effect]]] = []
    starts: list[int] = []
    offset = end = _HEADER.size
    while True:
        found = _record_at(data, offset)
        if found is not None:
            number, effects, end = found
            records.append((number, effects))
            starts.append(offset)
            offset = end
            continue
        again = _next_record(data, offset, records[-1][0] if records else 0)
        if again is None:
            return Replayed(records, end, problem, starts)
        problem = f"bytes {offset} to {again} are damaged"
        offset = again


def spans(data: bytes) -> list[tuple[int, int, list[Effect] | None]]:
    """A journal's whole records and what lies between and after them, as (begin, end, effects) in order.

    Effects are None where no record could be read. Raises JournalTooNew.
    """
    found: list[tuple[int, int, list[Effect] | None]] = []
    offset = _HEADER.size
    replayed = scan(data)
    for start, (_, effects) in zip(replayed.starts, replayed.records, strict=True):
        if start > offset:
            found.append((offset, start, None))
        offset = start + _RECORD.size + _RECORD.unpack_from(data, start)[0]
        found.append((start, offset, effects))
    return [*found, (offset, len(data), None)] if offset < len(data) else found


def _record_at(data: bytes, offset: int) -> tuple[int, list[Effect], int] | None:
    if offset + _RECORD.size > len(data):
        return None
    length, checksum, number = _RECORD.unpack_from(data, offset)
    begin, end = offset + _RECORD.size, offset + _RECORD.size + length
    if not 0 < length < _MAX_RECORD or end > len(data) or number == 0:
        return None
    if zlib.crc32(data[begin - 8 : end]) != checksum:
        return None
    effects = [(table, key, _cells[table](raw)) for table, key, raw in _decode(data[begin:end])]
    return number, effects, end


def _next_record(data: bytes, offset: int, last: int) -> int | None:
    """Where a whole record stands after damage: found by the sequence numbers that may come next."""
    # What was never written is zeros; a torn last record leaves little before them to search.
    end = len(data.rstrip(b"\0")) + 1
    for number in range(last + 1, last + 1001):
        packed = struct.pack("<Q", number)
        at = data.find(packed, offset, end)
        while at >= 0:
            if at - 8 >= offset and _record_at(data, at - 8) is not None:
                return at - 8
            at = data.find(packed, at + 1, end)
    return None


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def _allocate(descriptor: int, offset: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, offset, size)
    else:  # macOS: zeros do the same, once a mebibyte
        _write_all(descriptor, b"\0" * size, offset)


def _sync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # macOS: fsync does not reach the platter, F_FULLFSYNC does
        import fcntl

        fcntl.fcntl(descriptor, getattr(fcntl, "F_FULLFSYNC", 51))


__all__ = ["JOURNAL", "MAGIC", "Journal", "JournalTooNew", "Replayed", "scan", "spans", "sync_folder"]
