"""The JSON files as a set (M3): written off the core thread, wholly new or wholly old after any crash.

A ``Cut`` is what the core hands over: copied lists of references to frozen cells, and the clocks of that
moment. The writer encodes in slices, syncs each file beside its target, marks the set, then renames.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from milk_client.wire import SeenLine
from msgspec import Struct

from milkd import registry, shapes
from milkd.cells import FileExtra, PassMark, Remembered
from milkd.clocks import Run, Sitting
from milkd.config import Fading
from milkd.journal import sync_folder
from milkd.rules.percept import GLOBAL, Gone, Group, Held, Link
from milkd.rules.present import Present
from milkd.store import Store


class State(Struct, omit_defaults=True):
    """`state.json`: milkd's own. Lost, it costs only what stands here (M3)."""

    format: int = shapes.FORMAT
    generation: int = 0
    journal: int = 0
    """Records of the journal up to this number are in the set."""
    event: int = 0
    clocks: dict[str, float] = {}
    runs: list[Run] = []
    sittings: list[Sitting] = []
    heard: dict[str, float] = {}
    replies: dict[str, Remembered] = {}
    seen: dict[str, SeenLine] = {}
    passes: dict[str, PassMark] = {}
    meta: dict[str, float] = {}
    merged: dict[str, str] = {}
    fading: Fading | None = None
    """The knobs under which all strengths of the set hold."""
    files: dict[str, str] = {}
    """SHA-256 of each file as written."""


class ScopeCut(Struct):
    """One scope at the moment of the cut."""

    name: str
    percepts: list[Held]
    engrams: list[tuple[Group, list[Held]]]
    edges: list[Link]
    extra: FileExtra


class Cut(Struct):
    """What a snapshot writes: the scopes that changed, the archive if it did, and the state."""

    generation: int
    at: Present
    scopes: list[ScopeCut]
    archive: list[tuple[Gone, list[Link]]] | None
    archive_extra: FileExtra
    revived: bool
    removed: list[str]
    state: State


class Written(Struct):
    """What came of a snapshot: hashes and sizes, and files that somebody else had written meanwhile."""

    cut: Cut
    hashes: dict[str, str]
    sizes: dict[str, int]
    edits: list[tuple[str, bytes]]


def cut(store: Store, generation: int, journal: int, dirty: Iterable[str], *, revived: bool) -> Cut:
    """Copy references to what the set must hold. For the core thread; nothing is encoded here."""
    store.note_heard()
    readings = store.clocks.readings()
    names = set(dirty)
    known = {GLOBAL, *store.sessions()}
    archive = None
    if "archive" in names:
        archive = store.archived_with_links()
    return Cut(
        generation=generation,
        at=Present(store.knobs, lambda scope: readings.get(scope, 0.0)),
        scopes=[_scope_cut(store, name) for name in sorted(names & known, key=lambda n: (n != GLOBAL, n))],
        archive=archive,
        archive_extra=store.files.get("archive", FileExtra()),
        revived=revived,
        removed=sorted(names - known - {"archive"}),
        state=State(
            generation=generation,
            journal=journal,
            event=store.event,
            clocks=readings,
            runs=list(store.clocks.runs.values()),
            sittings=list(store.clocks.sittings.values()),
            heard={run_id: heard.request_boot for run_id, heard in store.clocks.heard.items()},
            replies={f"{c} {n}": kept for c, mine in store.replies.items() for n, kept in mine.items()},
            seen=dict(store.seen),
            passes=dict(store.marks),
            meta=dict(store.meta),
            merged=dict(store.merged),
            fading=store.knobs.fading,
        ),
    )


def _scope_cut(store: Store, name: str) -> ScopeCut:
    scope = store.scope(name)
    groups = [store.groups[i] for i in scope.engrams.values()]
    return ScopeCut(
        name=name,
        percepts=[store.percepts[i] for i in scope.living],
        engrams=[(group, store.members(group.id)) for group in groups],
        edges=sorted((store.links[key] for key in scope.edges), key=lambda link: link.seq),
        extra=store.files.get(name, FileExtra()),
    )


class _Mark(Struct):
    """`.set.json`: a set whose files are all written and synced, with their hashes, while it is put in place."""

    generation: int
    files: dict[str, str]
    removed: list[str]


class Files:
    """The set on disk. One thread at a time writes; only the holder of the home's lock renames."""

    def __init__(self, memory: Path) -> None:
        self.memory = memory
        self.hashes: dict[str, str] = {}
        self._marks: dict[str, tuple[int, int, int]] = {}
        self._edits: list[tuple[str, bytes]] = []
        """Edits that stood where files were put and are not told yet: a set that fails later keeps them."""

    # ------------------------------------------------------------ writing

    def write(self, cut: Cut) -> Written:
        """Write a set. Raises OSError; the set is then the old one, or one that `recover` makes whole.

        Off the core thread.
        """
        try:
            hashes, sizes = self._write_beside(cut)
        except OSError:
            # Half a set takes room and holds content that `forget` could not reach. What the mark names stays.
            if self._marked() != cut.generation:
                self._tidy(f".{cut.generation}")
            raise
        self._rename(cut, hashes)
        edits, self._edits = self._edits, []
        return Written(cut, hashes, sizes, edits)

    def _write_beside(self, cut: Cut) -> tuple[dict[str, str], dict[str, int]]:
        """Each file beside its target, then the mark: from now on the set is wholly new. Hashes and sizes."""
        hashes: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for name, pieces in self._documents(cut):
            digest = hashlib.sha256()
            sizes[name] = registry.write_file(self._temporary(name, cut.generation), pieces, digest.update)
            hashes[name] = digest.hexdigest()
        cut.state.files = {**self.hashes, **hashes}
        for name in cut.removed:
            cut.state.files.pop(f"{name}.json", None)
        state = _state_json(cut.state)
        sizes["state.json"] = registry.write_file(self._temporary("state.json", cut.generation), [state])
        hashes["state.json"] = hashlib.sha256(state).hexdigest()
        mark = _Mark(cut.generation, hashes, [f"{name}.json" for name in cut.removed])
        registry.replace_file(self.memory / registry.SET_MARK, msgspec.json.encode(mark))
        return hashes, sizes

    def _rename(self, cut: Cut, hashes: dict[str, str]) -> None:
        """Each file into place."""
        memory = self.memory
        for name in self._order(cut):
            self._put(name, cut.generation, hashes[name])
        for name in cut.removed:
            _target(memory / f"{name}.json").unlink(missing_ok=True)
            self.hashes.pop(f"{name}.json", None)
        sync_folder(memory)
        self._tidy()  # of sets that failed before this one
        (memory / registry.SET_MARK).unlink()
        sync_folder(memory)

    def _marked(self) -> int:
        """The generation that the mark names, 0 for none."""
        try:
            return msgspec.json.decode((self.memory / registry.SET_MARK).read_bytes(), type=_Mark).generation
        except (FileNotFoundError, msgspec.DecodeError):
            return 0

    def _tidy(self, generation: str = "*") -> None:
        """Remove temporary files, those beside the targets of linked files included; none of other programs."""
        for leftover in self.memory.glob(f".*.json{generation}.tmp"):
            leftover.unlink(missing_ok=True)
        for link in self.memory.glob("*.json"):
            if link.is_symlink():
                for leftover in _target(link).parent.glob(f".{link.name}{generation}.tmp"):
                    leftover.unlink(missing_ok=True)

    def _documents(self, cut: Cut) -> Iterator[tuple[str, Iterator[bytes]]]:
        at = cut.at
        for scope in cut.scopes:
            own = shapes.Own(generation=cut.generation, clock_s=at.reading(scope.name))
            parts: list[tuple[str, Iterable[bytes]]] = [
                ("percepts", (shapes.percept_json(at, held, 2) for held in scope.percepts)),
                ("engrams", (shapes.engram_json(at, group, members, 2) for group, members in scope.engrams)),
                ("edges", (shapes.edge_json(link, 2) for link in scope.edges)),
            ]
            yield f"{scope.name}.json", shapes.document(parts, own, scope.extra)
        if cut.archive is not None:
            entries = (shapes.archived_json(at, gone, links, 2) for gone, links in cut.archive)
            own = shapes.Own(generation=cut.generation, clock_s=at.reading(GLOBAL))
            yield "archive.json", shapes.document([("archive", entries)], own, cut.archive_extra)

    def _order(self, cut: Cut) -> list[str]:
        """Destinations first, so that no percept is in no file between two renames; the state last."""
        scopes = [f"{scope.name}.json" for scope in cut.scopes]
        archive = ["archive.json"] if cut.archive is not None else []
        order = [*scopes, *archive] if cut.revived else [*archive, *scopes]
        return [*order, "state.json"]

    def _put(self, name: str, generation: int, digest: str) -> None:
        """Rename one file into place; an edit that stood there unseen is kept to be told."""
        temporary, target = self._temporary(name, generation), _target(self.memory / name)
        exchanged = target.exists() and _exchange(temporary, target)
        if not exchanged:
            os.replace(temporary, target)
        known, before = self._marks.get(name), self.hashes.get(name, "")
        self._marks[name], self.hashes[name] = _identity(target), digest
        if not exchanged:
            return
        if name != "state.json" and _identity(temporary) != known:
            data = temporary.read_bytes()
            if hashlib.sha256(data).hexdigest() != before:
                self._edits.append((name, data))
        temporary.unlink()

    def _temporary(self, name: str, generation: int) -> Path:
        target = _target(self.memory / name)
        return target.with_name(f".{name}.{generation}.tmp")

    # ------------------------------------------------------------ reading

    def recover(self, date: str) -> str:
        """Make the set whole after a crash: finish one that was marked, drop one that was not.

        Returns a note for people, "" where there was nothing to do. Raises OSError.
        """
        path = self.memory / registry.SET_MARK
        note = ""
        if path.exists():
            data = path.read_bytes()
            try:
                mark = msgspec.json.decode(data, type=_Mark)
            except (msgspec.DecodeError, RecursionError):
                # The journal has what the files lack: it begins anew only when a set is whole.
                registry.set_aside(self.memory, path.name, data, date)
                note = f"{path.name} could not be read and was set aside; what it was about is in the journal"
            else:
                self._finish(mark)
                note = f"finished writing generation {mark.generation} of the files"
            path.unlink()
        self._tidy()
        return note

    def _finish(self, mark: _Mark) -> None:
        for name, digest in mark.files.items():
            temporary = self._temporary(name, mark.generation)
            if temporary.exists() and hashlib.sha256(temporary.read_bytes()).hexdigest() == digest:
                os.replace(temporary, _target(self.memory / name))
        for name in mark.removed:
            _target(self.memory / name).unlink(missing_ok=True)
        sync_folder(self.memory)

    def read(self, name: str) -> bytes | None:
        """A file's bytes, None where there is none; remembers what it is, to tell edits from own writes."""
        target = _target(self.memory / name)
        try:
            data = target.read_bytes()
        except FileNotFoundError:
            return None
        self.hashes[name] = hashlib.sha256(data).hexdigest()
        self._marks[name] = _identity(target)
        return data

    def edited(self, name: str) -> bytes | None:
        """A file's bytes if they are not what milkd wrote or read last; None otherwise. Raises OSError."""
        target = _target(self.memory / name)
        try:
            if _identity(target) == self._marks.get(name) or not target.is_file():
                return None
            data = target.read_bytes()
        except FileNotFoundError:
            return None
        return None if hashlib.sha256(data).hexdigest() == self.hashes.get(name) else data

    def missing(self, name: str) -> bool:
        """Whether a file that milkd wrote or read is there no longer."""
        return name in self.hashes and not _target(self.memory / name).exists()

    def accept(self, name: str, data: bytes) -> None:
        """An edit was taken in (or set aside): from now on the file's bytes are known."""
        self.hashes[name] = hashlib.sha256(data).hexdigest()

    def scopes(self) -> list[str]:
        """Names of the scopes that have a file, the global one first."""
        files = (path for path in self.memory.glob("*.json") if path.is_file())
        found = [path.stem for path in files if not registry.is_conflicted_copy(path.name)]
        return [GLOBAL, *sorted(name for name in found if name[0] != "." and name not in registry.OWN_NAMES)]


def _state_json(state: State) -> bytes:
    return msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n"


def read_state(data: bytes) -> State:
    """`state.json`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=State)


def _target(path: Path) -> Path:
    """Where a file really lies: a linked one is written beside its target, the link stays."""
    return path.resolve() if path.is_symlink() else path


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _load_libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "renameat2") else None


_LIBC = _load_libc()
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the platform or file system cannot."""
    if _LIBC is None:
        return False
    done = _LIBC.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(other))
