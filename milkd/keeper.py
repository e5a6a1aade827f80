"""What keeps memory on disk: the journal before an answer, the files soon after, edits by hand taken in.

Part of the roof: it joins the store with the journal, the snapshot and the registry, and tells in words
what is wrong with any of them (`status`).
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from milk_client.errors import Invalid
from milk_client.paths import Home, check_session
from msgspec import Struct

from milkd import registry, shapes
from milkd.edits import Edited
from milkd.journal import JOURNAL, Journal
from milkd.loading import Loaded, load
from milkd.rules.percept import GLOBAL
from milkd.scrubbing import scrubbed
from milkd.shapes import NotAFile, Own, Parsed
from milkd.snapshot import Cut, Files, ScopeCut, Written, cut
from milkd.store import Store
from milkd.tables import FORGOTTEN, UNSCRUBBED

BASE_KEPT_S = 3600.0
"""How long an older generation of a file can be the base of a hand edit."""
BASE_ITEMS = 500_000
"""How many percepts the bases of one scope may hold on to: a store of 100,000 keeps the last few."""
SETTLE_S = 2.0
"""How long a file may be unreadable (an editor is writing it) before it is set aside."""
SMALL = 2000
"""Up to so many percepts in both scopes, the files hold a pass before its answer (M16.7)."""


class SnapshotDone(Struct):
    """From the writer: a set is on disk, or why it is not."""

    cut: Cut
    written: Written | None
    error: OSError | None
    scrub: list[tuple[str, str]]


class _Order(Struct):
    cut: Cut
    scrub: list[tuple[str, str]]


class _Base(Struct, frozen=True):
    """What a scope's file said in a generation: since when, how many percepts, and how to make it again."""

    since: float
    size: int
    parsed: Callable[[], Parsed]


class Keeper:
    """The journal, the set of files and the writer thread. For the core thread."""

    def __init__(
        self,
        home: Home,
        store: Store,
        post: Callable[[Any], None],
        journal_max_bytes: int,
        check_place: Callable[[], None] = lambda: None,
    ) -> None:
        """``check_place`` raises OSError where the home is another one by now: no file may be put there."""
        self.home = home
        self.store = store
        self.health: dict[str, str] = {}
        self.notes: list[str] = []
        self.journal = Journal(home.memory / JOURNAL)
        self.files = Files(home.memory)
        self.generation = 0
        self.journal_max_bytes = journal_max_bytes
        self.snapshot_bytes = 0
        self.sync_max_ms = 0.0
        self.sync_s = 0.0
        self._post = post
        self._check_place = check_place
        self._bases: dict[str, dict[int, _Base]] = {}
        self._unseen: set[str] = set()
        self._unreadable: dict[str, float] = {}
        self._again = False
        self._busy = False
        self._ended = False
        self._scrub: list[tuple[str, str]] = []
        self._compact = False
        """Whether the journal is to begin anew with the next set, however short it is."""
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_loop, name="milkd-writer", daemon=True)

    # ------------------------------------------------------------ start and stop

    def load(self, date: str, boot_s: float) -> Loaded:
        """Fill the store from disk. Raises TooNew, JournalTooNew, OSError."""
        loaded = load(self.store, self.files, self.journal, date)
        self.generation = loaded.generation
        self.notes += loaded.notes
        self._compact = loaded.damaged
        self._scrub = [(percept_id, "") for percept_id in self.store.noted(UNSCRUBBED)]
        for n, problem in enumerate(loaded.problems):
            self.health[f"load {n}"] = problem
        for (scope, generation), parsed in loaded.bases.items():
            self._bases[scope] = {generation: _Base(boot_s, len(parsed.percepts), _as_read(parsed))}
        self._writer.start()
        return loaded

    def end_writer(self) -> None:
        """Wait for the writer thread to end; what it has to tell is then in the mailbox."""
        self._ended = True
        self._orders.put(None)
        self._writer.join()

    def write_last(self, date: str, boot_s: float) -> tuple[SnapshotDone, list[Edited]]:
        """A set in this thread, after `end_writer`; with edits that came to light and are not in it."""
        done = self._do(_Order(self._cut(boot_s), self._take_scrub()))
        return done, self._finish(done, date)

    def figures(self) -> dict[str, int]:
        """What the journal and the files come to: bytes, records, generation."""
        return {
            "bytes": self.journal.end,
            "written_bytes": self.journal.bytes_written,
            "records": self.journal.next_number - 1,
            "snapshot_written_bytes": self.snapshot_bytes,
            "generation": self.generation,
        }

    def close(self) -> None:
        """Nothing more is written."""
        self.journal.close()

    # ------------------------------------------------------------ journal

    def commit(self) -> None:
        """Put what changed on disk; when this returns, nothing of it can be lost. Raises OSError."""
        effects = self.store.pending()
        if effects:
            begin = time.perf_counter()
            try:
                self.journal.append(effects)
            finally:
                spent_s = time.perf_counter() - begin
                self.sync_s += spent_s
                self.sync_max_ms = max(self.sync_max_ms, spent_s * 1000)
        self.store.committed()
        self.health.pop("journal", None)

    # ------------------------------------------------------------ files

    def want_files(self, boot_s: float) -> int:
        """Have the files hold the present; returns the generation to wait for, 0 where they do already."""
        if not self.store.dirty and not self._scrub and not self._compact:
            return self.generation if self._busy else 0
        if self._busy or self._ended:
            self._again = True
            return self.generation + 1
        self._start(boot_s)
        return self.generation

    def want_scrub(self, boot_s: float) -> int:
        """After `forget`: as `want_files`, and no keepsake or journal holds what was erased (M20)."""
        self._scrub += self.store.erased
        self.store.erased.clear()
        self._bases.clear()
        return self.want_files(boot_s)

    def done(self, done: SnapshotDone, date: str, boot_s: float) -> list[Edited]:
        """The writer has finished; returns edits that came to light. Starts the next set if one is wanted."""
        self._busy = False
        edits = self._finish(done, date)
        edits += self.look((), date, boot_s)
        again, self._again = self._again and done.error is None and not self._ended, False
        if again:
            self._start(boot_s)
        return edits

    def _start(self, boot_s: float) -> None:
        self._busy = True
        self._orders.put(_Order(self._cut(boot_s), self._take_scrub()))

    def _take_scrub(self) -> list[tuple[str, str]]:
        taken, self._scrub = self._scrub, []
        self._compact = self._compact or bool(taken)
        return taken

    def _cut(self, boot_s: float) -> Cut:
        self.generation += 1
        store = self.store
        made = cut(store, self.generation, self.journal.next_number - 1, store.dirty, revived=store.revived)
        store.dirty.clear()
        store.revived = False
        for scope in made.scopes:
            bases = self._bases.setdefault(scope.name, {})
            bases[self.generation] = _Base(boot_s, len(scope.percepts), _as_written(scope, made))
            _let_go(bases, boot_s)
        return made

    def _finish(self, done: SnapshotDone, date: str) -> list[Edited]:
        if done.error is not None or done.written is None:
            reason = done.error.strerror if done.error else "unknown"
            self.health["files"] = (
                f"the JSON files could not be written ({reason}); everything is in the journal, and they follow"
            )
            self._scrub += done.scrub
            self.store.dirty.update(scope.name for scope in done.cut.scopes)
            self.store.dirty.update(done.cut.removed)
            if done.cut.archive is not None:
                self.store.dirty.add("archive")
            return []
        self.health.pop("files", None)
        self.snapshot_bytes += sum(done.written.sizes.values())
        self._tidy_journal(done)
        if done.error is None:
            for percept_id, _ in done.scrub:
                self.store.put_lazy("meta", UNSCRUBBED + percept_id, None)
        edits = []
        for name, data in done.written.edits:
            edited = self._read_edit(name, data, date)
            if edited is not None:
                edits.append(edited)
        return edits

    def _tidy_journal(self, done: SnapshotDone) -> None:
        if not self._compact and self.journal.end < self.journal_max_bytes:
            return
        begin = time.perf_counter()
        try:
            self.journal.compact(done.cut.state.journal)
            self._compact = False
            self.health.pop("compaction", None)
        except OSError as error:
            self.health["compaction"] = f"the journal could not be compacted ({error.strerror}); it goes on growing"
            if done.scrub:
                done.error = error  # it still holds what was to be forgotten
        self.sync_s += time.perf_counter() - begin

    def _write_loop(self) -> None:
        while (order := self._orders.get()) is not None:
            self._post(self._do(order))

    def _do(self, order: _Order) -> SnapshotDone:
        try:
            self._check_place()
            written = self.files.write(order.cut)
            if order.scrub:
                registry.scrub(self.home.memory, (i for i, _ in order.scrub), (c for _, c in order.scrub))
        except OSError as error:
            return SnapshotDone(order.cut, None, error, order.scrub)
        return SnapshotDone(order.cut, written, None, order.scrub)

    # ------------------------------------------------------------ edits by hand

    def look(self, names: Iterable[str], date: str, boot_s: float) -> list[Edited]:
        """Look at files that may have been edited; returns what is to be merged through the door (M3)."""
        if self._busy:
            # The writer looks itself at what it renames; the others have their turn when it is done.
            self._unseen.update(names)
            return []
        edits = []
        wanted, self._unseen = {*names, *self._unseen}, set()
        for name in sorted(wanted):
            if not _is_ours(name.removesuffix(".json")):
                continue
            if self.files.missing(name):
                self.store.dirty.add(name.removesuffix(".json"))
                self.notes.append(f"{name} was removed by another hand; it is written anew")
                continue
            data = self._changed(name)
            if data is None:
                self._unreadable.pop(name, None)
                continue
            since = self._unreadable.setdefault(name, boot_s)
            if boot_s - since < SETTLE_S and not _parses(data):
                continue
            self._unreadable.pop(name, None)
            edited = self._read_edit(name, data, date)
            self.files.accept(name, data)
            if edited is not None:
                edits.append(edited)
        return edits

    def _changed(self, name: str) -> bytes | None:
        """The bytes of a file that another hand changed, if it did and they can be read."""
        try:
            return self.files.edited(name)
        except OSError as error:
            self.health[f"edit {name}"] = f"{name} was changed by another hand and cannot be read ({error.strerror})"
            return None

    def unreadable(self) -> list[str]:
        """Files that somebody is still writing, to be looked at again."""
        return list(self._unreadable)

    def look_at_all(self) -> list[str]:
        """Every file of the set, for a look without a watch."""
        return [*(f"{name}.json" for name in self.files.scopes()), "archive.json"]

    def _read_edit(self, name: str, data: bytes, date: str) -> Edited | None:
        """An edit as a request, or None where it was set aside; the file is then written anew."""
        scope = name.removesuffix(".json")
        self.store.dirty.add(scope if name != "state.json" else GLOBAL)
        if scope in ("archive", "state"):
            self.refuse(name, data, date, "is milkd's own; use `milkctl restore` and `milkctl forget`")
            return None
        try:
            theirs = shapes.parse(data)
            _check_keys(data)
        except (NotAFile, ValueError, RecursionError) as error:
            self.refuse(name, data, date, f"is not valid ({error})")
            return None
        if theirs.wrong:
            first = theirs.wrong[0]
            self.refuse(name, data, date, f"has {first.where} wrong: {first.why}")
            return None
        base = self._bases.get(scope, {}).get(theirs.own.generation)
        if base is None:
            self.refuse(name, data, date, f"is based on generation {theirs.own.generation}, no longer known")
            return None
        return Edited(scope, theirs, base.parsed(), data)

    def refuse(self, name: str, data: bytes, date: str, why: str) -> None:
        """Set an edit by hand aside that was not taken in, and tell why."""
        try:
            path = registry.set_aside(self.home.memory, name, scrubbed(data, self.store.noted(FORGOTTEN)), date)
        except OSError as error:
            self.health[f"edit {name}"] = f"{name} was changed by another hand, {why}, and is lost ({error.strerror})"
            return
        self.health[f"edit {name}"] = (
            f"{name} was changed by another hand and {why}; kept as memory/{path.relative_to(self.home.memory)}"
        )


def _is_ours(scope: str) -> bool:
    """Whether a file of that stem is one of the set; any other program's is left alone."""
    if scope in registry.OWN_NAMES:
        return True
    if registry.is_conflicted_copy(scope):
        return False
    try:
        check_session(scope)
    except Invalid:
        return False
    return True


def _parses(data: bytes) -> bool:
    try:
        shapes.parse(data)
    except NotAFile:
        return False
    return True


def _check_keys(data: bytes) -> None:
    """Raise ValueError for an object that says a key twice: one of the two would be lost silently."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {twice!r} stands twice in one object")
        return found

    json.loads(data.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=unique)


def _let_go(bases: dict[int, _Base], boot_s: float) -> None:
    """Drop the bases of a scope that are too old or too many, never the newest."""
    size = sum(base.size for base in bases.values())
    for generation in sorted(bases)[:-1]:
        if size <= BASE_ITEMS and boot_s - bases[generation].since <= BASE_KEPT_S:
            return
        size -= bases.pop(generation).size


def _as_read(parsed: Parsed) -> Callable[[], Parsed]:
    return lambda: parsed


def _as_written(scope: ScopeCut, made: Cut) -> Callable[[], Parsed]:
    """What a scope's file said in this generation, made again when an edit asks for it."""

    def parsed() -> Parsed:
        at = made.at
        return Parsed(
            own=Own(generation=made.generation, clock_s=at.reading(scope.name)),
            percepts=[(at.record(held), held.extra) for held in scope.percepts],
            engrams=[(shapes.engram_now(at, g, members), g.extra) for g, members in scope.engrams],
            edges=[(link.edge, link.extra) for link in scope.edges],
            extra=scope.extra,
            wrong=[],
        )

    return parsed


__all__ = ["SMALL", "Keeper", "SnapshotDone"]
