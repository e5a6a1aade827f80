"""A world on a real folder: journal, files and edits by hand as the daemon keeps them, without sockets or threads."""

from __future__ import annotations

import itertools
import json
import os
import queue
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from milk_client import wire
from milk_client.paths import home_at
from world import World

from milkd.keeper import Keeper, SnapshotDone
from milkd.service import Checkpoint, Internal, Retune
from milkd.store import Store

DATE = "20260105T090000"


class Kept(World):
    """A service whose store is on disk. Each answer is in the journal; files are written when the test says so."""

    def __init__(
        self, root: Path, *, after: World | None = None, date: str = DATE, writer: bool = False, **knobs: Any
    ) -> None:
        super().__init__(knobs)
        self.date = date
        self.numbers = itertools.count(1)
        if isinstance(after, Kept):
            self.now, self.numbers = after.now, after.numbers
            self.processes, self.sessions, self.made = after.processes, after.sessions, after.made
        self.service.new_id = lambda: f"{next(self.numbers):08x}-0000-4000-8000-000000000000"
        self.home = home_at(root, {}, uid=os.getuid())
        self.memory = self.home.memory
        self.memory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.box: queue.SimpleQueue[SnapshotDone] = queue.SimpleQueue()
        self.keeper = Keeper(self.home, self.store, self.box.put, 1 << 24)
        wanted = self.store.knobs
        self.loaded = self.keeper.load(date, self.now.boot)
        self.apply(Retune(wanted))
        if not writer:
            self.keeper.end_writer()

    def ask(self, request: wire.Ask, run: str = "") -> Any:
        """One request, in the journal when this returns. `forget` and its like want `files` next. Raises OSError."""
        mark = self.store.mark()
        answer = super().ask(request, run)
        self._commit(mark, self.store.must_sync())
        if isinstance(request, wire.Forget | wire.RenameSession | wire.MergeSession):
            self.keeper.want_scrub(self.now.boot)
        return answer

    def apply(self, request: Internal) -> None:
        """Something from within the daemon."""
        mark = self.store.mark()
        super().apply(request)
        self._commit(mark, self.store.must_sync() or isinstance(request, Checkpoint))

    def _commit(self, mark: Any, wanted: bool) -> None:
        if wanted:
            try:
                self.keeper.commit()
            except OSError:
                self.store.rollback(mark)
                raise

    def files(self) -> SnapshotDone:
        """Write a set of files; edits by hand that it met are taken in."""
        done, edits = self.keeper.write_last(self.date, self.now.boot)
        for edited in edits:
            self.apply(edited)
        return done

    def look(self, *names: str) -> int:
        """Notice files that another hand has changed; how many were merged."""
        edits = self.keeper.look(names, self.date, self.now.boot)
        for edited in edits:
            self.apply(edited)
        return len(edits)

    def die(self) -> None:
        """The process is gone, with nothing put in order."""
        self.keeper.close()

    def again(self, root: Path | None = None) -> Kept:
        """The daemon dies and another starts, on this folder or on a copy of it."""
        self.die()
        return Kept(root or self.home.root, after=self)

    def aside(self) -> dict[str, bytes]:
        """What has been set aside, by its name without the date."""
        folder = self.memory / "aside"
        found = folder.iterdir() if folder.is_dir() else ()
        return {path.name.removeprefix(f"{DATE}-"): path.read_bytes() for path in found}


def furnished(root: Path) -> Kept:
    """A home with a set of files: two sessions, a core global, an edge, an engram and an archive."""
    world = Kept(root)
    world.attach("r", "s")
    world.say("r", "Never commit secrets", core=True, producer="user")
    world.say("r", "The user likes rye bread", producer="user", subject="bread")
    for content in ("Keys hang by the door", "Backups run at noon", "Host is falcon"):
        world.say("r", content)
    keys, backups, host = (i for i, held in world.store.percepts.items() if held.record.producer == "primary")
    world.ask(wire.Link(source=keys, target=backups, relation="extends"))
    world.say("r", "Host is osprey", replaces=host)
    world.ask(wire.Record(session="t", content="Tea is at four"))
    world.advance(600.0)
    assert not world.files().error
    return world


def percept(number: int, content: str, **more: Any) -> dict[str, Any]:
    """A percept with what a file of an older program has at least."""
    made = {"id": f"{number:08x}-0000-4000-8000-000000000000", "content": content, "w": 0.7}
    return {**made, "created_at": "2026-01-05T09:00:00Z", "updated_at": "2026-01-05T09:00:00Z", **more}


def contents(world: Kept) -> set[str]:
    """What is said by those that live."""
    return {held.record.content for held in world.store.percepts.values()}


def bytes_in(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_journal(root: Path, copy: Path) -> Path:
    """A copy of a home in which the set of files stands alone."""
    shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns("journal"))
    return copy


def in_files(memory: Path) -> dict[str, set[str]]:
    """The ids in each file of the set, as any other program reads them now."""
    found = {}
    for path in memory.glob("[!.]*.json"):
        document = json.loads(path.read_bytes())
        entries = [*document.get("percepts", ()), *(entry["percept"] for entry in document.get("archive", ()))]
        found[path.stem] = {entry["id"] for entry in entries}
    return found


def view(store: Store) -> dict[str, Any]:
    """What is remembered as of now, however it came to be in memory: numbers to the last billionth."""

    def record(held: Any, scope: str) -> tuple[Any, ...]:
        now = store.record(held)
        numbers = [round(n or 0.0, 9) for n in (now.w, now.w_confirmed)] + [round(now.idle_seconds, 6)]
        said = (now.content, now.producer, now.consumer, tuple(sorted(now.roles.items())), now.core, now.engram_id)
        times = (now.evidence, now.evidence_event, now.created_at, now.updated_at, now.last_used_at)
        return (scope, said, tuple(numbers), times, tuple(sorted(held.extra.items())))

    return {
        "living": {i: record(held, held.scope) for i, held in sorted(store.percepts.items())},
        "archive": {
            i: (record(gone.held, gone.held.scope), gone.reason, gone.at, gone.successor)
            for i, gone in sorted(store.archive.items())
        },
        "edges": {key: (link.edge, link.extra) for key, link in sorted(store.links.items())},
        "engrams": {i: (group.label, group.scope) for i, group in sorted(store.groups.items())},
        "runs": dict(sorted(store.clocks.runs.items())),
        "clocks": {scope: round(seconds, 6) for scope, seconds in sorted(store.clocks.readings().items()) if seconds},
        "event": store.event,
    }


def no_waiting(monkeypatch: pytest.MonkeyPatch, names: Iterable[str] = ("fsync", "fdatasync")) -> None:
    """For tests that ask what is in a file, not whether the platter has it: thousands of syncs take minutes."""
    for name in names:
        monkeypatch.setattr(os, name, lambda descriptor: os.fstat(descriptor) and None)
