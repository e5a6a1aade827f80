"""From the files and the journal to a store (M3, M7): newest whole set, then the effects after it.

Whatever cannot be read is set aside under a dated name and told; nothing is overwritten unread. A file of a
newer format refuses the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
from milk_client.errors import Invalid
from milk_client.paths import check_session
from milk_client.wire import PerceptRecord
from msgspec import Struct
from msgspec.structs import replace

from milkd import registry, shapes
from milkd.clocks import Heard
from milkd.journal import JOURNAL, Journal, Replayed, sync_folder
from milkd.rules.percept import GLOBAL, Gone, Group, Link, edge_key, unstamp
from milkd.scrubbing import cleaned
from milkd.shapes import NotAFile, Parsed, Wrong
from milkd.snapshot import Files, State, read_state
from milkd.store import Store
from milkd.tables import FORGOTTEN


class TooNew(Exception):
    """A file of a later version of milkd: reading it would lose what this version does not know."""


class Loaded(Struct):
    """What a start found: where to go on, what to tell, and each file as read (the base of hand edits)."""

    generation: int
    notes: list[str]
    problems: list[str]
    bases: dict[tuple[str, int], Parsed]
    foreign: bool
    damaged: bool = False
    """The journal was: a copy is set aside, and the next set of files lets it begin anew."""


class _Loader:
    def __init__(self, store: Store, files: Files, date: str) -> None:
        self.store = store
        self.files = files
        self.date = date
        self.notes: list[str] = []
        self.problems: list[str] = []
        self.unusable: list[tuple[str, bytes, str]] = []
        self.bases: dict[tuple[str, int], Parsed] = {}
        self.generation = 0
        self.waiting: list[tuple[Link, str]] = []
        self.journalled: set[str] = set()
        """Edges of which the journal tells: what a file says of them is older."""
        self.changed: dict[str, bytes] = {}
        """Files that somebody changed while no daemon ran."""

    def aside(self, name: str, data: bytes, why: str) -> None:
        self.unusable.append((name, data, why))

    def keep_unusable(self) -> None:
        """Set aside what could not be used. Last, for a start that is refused changes nothing."""
        forgotten = self.store.noted(FORGOTTEN)
        for name, found, why in self.unusable:
            data = cleaned(name, found, forgotten)
            path = registry.set_aside(self.files.memory, name, data, self.date)
            self.problems.append(f"{name}: {why}; kept as memory/{path.relative_to(self.files.memory)}")

    def wrongs(self, name: str, wrong: Iterable[Wrong]) -> None:
        for part in wrong:
            self.aside(f"{name}.{part.where}.json", part.raw, f"{part.where} cannot be used ({part.why})")

    def check_format(self, name: str, own: shapes.Own) -> None:
        if own.format > shapes.FORMAT:
            raise TooNew(
                f"{name} has format {own.format}, written by a newer milkd; this one reads up to {shapes.FORMAT}. "
                "Upgrade milkd; nothing was changed."
            )
        self.generation = max(self.generation, own.generation)

    # ------------------------------------------------------------ the parts

    def state(self) -> State:
        data = self.files.read("state.json")
        if data is None:
            return State()
        try:
            form = msgspec.json.decode(data, type=shapes.Own).format
            if form > shapes.FORMAT:
                raise TooNew(
                    f"state.json has format {form}, written by a newer milkd. Upgrade milkd; nothing was changed."
                )
            state = read_state(data)
        except (msgspec.DecodeError, RecursionError) as error:
            self.aside("state.json", data, f"cannot be read ({error}): runs and clocks start anew")
            return State()
        store = self.store
        store.event = state.event
        for scope, seconds in state.clocks.items():
            store.clocks.set_reading(scope, seconds)
        cells = [("run", run.id, run) for run in state.runs]
        cells += [("sitting", str(s.number), s) for s in state.sittings]  # type: ignore[misc]
        store.replay(cells)
        # A key that was damaged on disk names no request.
        replies = {key: kept for key, kept in state.replies.items() if key.rpartition(" ")[2].isdecimal()}
        store.replay(("reply", key, kept) for key, kept in replies.items())
        store.replay(("seen", key, line) for key, line in state.seen.items())
        store.replay(("pass", key, mark) for key, mark in state.passes.items())
        store.replay(("meta", key, value) for key, value in state.meta.items())
        store.replay(("merged", key, value) for key, value in state.merged.items())
        for run in state.runs:
            if run.live:
                store.clocks.heard[run.id] = Heard(state.heard.get(run.id, 0.0))
        self.generation = state.generation
        return state

    def scope(self, name: str, expected: dict[str, str]) -> None:
        file = f"{name}.json"
        data = self.files.read(file)
        if data is None:
            return
        if name != GLOBAL:
            try:
                check_session(name)
            except Invalid as error:
                self.notes.append(f"{file}: is no session's file ({error.message}); left alone")
                return
        try:
            parsed = shapes.parse(data)
        except NotAFile as error:
            self.aside(file, data, f"cannot be read ({error})")
            self.store.dirty.add(name)
            return
        self.check_format(file, parsed.own)
        if expected and expected.get(file, "") != self.files.hashes[file]:
            self.changed[file] = data
            self.notes.append(f"{file} was changed while milkd was not running: taken in as it is")
        self.wrongs(file, parsed.wrong)
        self.bases[name, parsed.own.generation] = parsed
        self._place(name, parsed)

    def _place(self, name: str, parsed: Parsed) -> None:
        store = self.store
        if parsed.own.clock_s is not None:
            store.clocks.set_reading(name, parsed.own.clock_s)
        clock_s = store.clocks.reading(name) if parsed.own.clock_s is None else parsed.own.clock_s
        store.put_quietly("file", name, parsed.extra)
        label_of: dict[str, str] = {}
        for engram, extra in parsed.engrams:
            if engram.subject_label in store.scope(name).engrams or engram.id in store.groups:
                raw = shapes.indented(engram, extra, 0)
                self.aside(f"{name}.engram.json", raw, f"the engram {engram.subject_label!r} stands there twice")
                continue
            store.put_quietly(
                "engram",
                engram.id,
                Group(engram.id, engram.subject_label, name, engram.created_at, engram.updated_at, extra),
            )
            label_of.update((percept_id, engram.id) for percept_id in engram.percept_ids)
        global_s = clock_s if name == GLOBAL else store.clocks.reading(GLOBAL)
        born = sorted(enumerate(parsed.percepts), key=lambda p: (unstamp(p[1][0].created_at), p[0]))
        for _, (found, extra) in born:
            record = found
            if not record.engram_id and record.id in label_of:
                record = replace(record, engram_id=label_of[record.id])
            if record.id in store.percepts:
                raw = shapes.indented(record, extra, 0)
                self.aside(f"{name}.{record.id}.json", raw, f"{record.id} stands in another file too")
                continue
            if FORGOTTEN + record.id in store.meta:
                self.notes.append(f"{name}.json: {record.id[:8]} was forgotten and does not come back")
                store.dirty.add(name)
                continue
            if record.engram_id and record.engram_id not in store.groups:
                self._make_engram(record, name)
            held = shapes.held_from(record, extra, name, clock_s, global_s, store.next_seq())
            store.put_quietly("percept", record.id, held)
            store.event = max(store.event, record.evidence_event)
        for edge, extra in parsed.edges:
            self.waiting.append((Link(edge, 0, extra), f"{name}.json"))

    def _make_engram(self, record: PerceptRecord, scope: str) -> None:
        """The engram that a percept names and nobody wrote down: by its theme, where that label is free."""
        theme = record.roles.get("theme", "")
        label = theme if theme and theme not in self.store.scope(scope).engrams else record.engram_id
        group = Group(record.engram_id, label, scope, record.created_at, record.updated_at)
        self.store.put_quietly("engram", group.id, group)
        self.store.dirty.add(scope)

    def archive(self) -> None:
        data = self.files.read("archive.json")
        if data is None:
            return
        try:
            entries, extra, own, wrong = shapes.parse_archive(data)
        except NotAFile as error:
            self.aside("archive.json", data, f"cannot be read ({error})")
            self.store.dirty.add("archive")
            return
        self.check_format("archive.json", own)
        self.wrongs("archive.json", wrong)
        store = self.store
        store.put_quietly("file", "archive", extra)
        for gone, edges in entries:
            if gone.held.id in store.percepts or FORGOTTEN + gone.held.id in store.meta:
                continue
            store.put_quietly("archive", gone.held.id, self._placed(gone))
            self.waiting += [(link, "archive.json") for link in edges]

    def _placed(self, gone: Gone) -> Gone:
        held = gone.held
        store = self.store
        at_s = store.clocks.reading(held.scope) if math.isnan(held.at_s) else held.at_s
        idle_s = -held.idle_from_s  # as of the moment of its strength; of a session's there is none (M9)
        from_s = (at_s if held.scope == GLOBAL else store.clocks.reading(GLOBAL)) - idle_s
        return replace(gone, held=replace(held, at_s=at_s, idle_from_s=from_s, seq=store.next_seq()))

    def edges(self) -> None:
        """Edges last, when all ends are known, in the order they were made; those without an end wait."""
        store = self.store
        waiting, self.waiting = self.waiting, []
        order = sorted(enumerate(waiting), key=lambda item: (item[1][0].edge.made_event, item[0]))
        for _, (link, file) in order:
            edge = link.edge
            ends = (edge.source, edge.target)
            if not all(end in store.percepts or end in store.archive for end in ends):
                self.waiting.append((link, file))
                continue
            places = {(store.percepts.get(end) or store.archive[end].held).scope for end in ends}
            if len(places - {GLOBAL}) > 1:
                self.aside(f"{file}.edge.json", shapes.edge_json(link), "an edge joins two sessions")
                continue
            if edge.relation == "contradicts" and edge_key(edge.target, edge.source, "contradicts") in store.links:
                continue
            store.put_quietly("edge", link.key, replace(link, seq=store.next_seq()))
            store.event = max(store.event, edge.propagated_event, edge.made_event)

    def late_edges(self) -> None:
        """After the replay: it brings ends that a file lacked, and edges whose end a file or damage has lost."""
        self.waiting = [(link, file) for link, file in self.waiting if link.key not in self.journalled]
        self.edges()
        store = self.store
        for key, link in list(store.links.items()):
            if not all(end in store.percepts or end in store.archive for end in (link.edge.source, link.edge.target)):
                self.waiting.append((link, JOURNAL))
                store.put_quietly("edge", key, None)
        for link, file in self.waiting:
            self.aside(f"{file}.edge.json", shapes.edge_json(link), "an edge lacks an end")


def load(store: Store, files: Files, journal: Journal, date: str) -> Loaded:
    """Fill a store. Raises TooNew, JournalTooNew or OSError; the home is as it was then.

    What it holds holds under the knobs of then: those in force now come in as a change (`Retune`).
    """
    recovered = files.recover(date)
    loader = _Loader(store, files, date)
    if recovered:
        loader.notes.append(recovered)
    state = loader.state()
    if state.fading is not None:
        store.knobs = store.knobs.under(state.fading)
    for name in files.scopes():
        loader.scope(name, state.files)
    loader.archive()
    loader.edges()
    foreign = _keep_foreign(files.memory, date)
    if foreign:
        loader.notes.append(f"the files found here were copied to memory/{registry.BEFORE}{date} first")
    damaged = _replay(store, loader, journal, state.journal)
    loader.late_edges()
    loader.keep_unusable()
    journal.next_number = max(journal.next_number, state.journal + 1)
    store.settle()
    if state.fading is None:
        store.note_fading()
    return Loaded(loader.generation, loader.notes, loader.problems, loader.bases, foreign, damaged)


def _replay(store: Store, loader: _Loader, journal: Journal, covered: int) -> bool:
    """Bring the store to what the journal says; returns whether the journal is damaged."""
    replayed: Replayed = journal.read()
    if replayed.problem:
        data = journal.path.read_bytes()
        loader.aside(JOURNAL, data, f"the journal is damaged ({replayed.problem}); what is whole was used")
    fresh = [effects for number, effects in replayed.records if number > covered]
    for effects in fresh:
        store.replay(effects)
        loader.journalled.update(key for table, key, _ in effects if table == "edge")
    if fresh:
        for file, edited in loader.changed.items():
            loader.aside(file, edited, "was changed after a crash; what the crash had left to be written went first")
        loader.notes.append(f"recovered {len(fresh)} record(s) from the journal")
    return bool(replayed.problem)


def _keep_foreign(memory: Path, date: str) -> bool:
    """Copy a home that another program wrote aside, on the first start over it (interface: Home)."""
    if (memory / "state.json").exists() or (memory / JOURNAL).exists():
        return False
    found = [path for path in memory.glob("*.json") if path.is_file()]
    if not found:
        return False
    folder = memory / f"{registry.BEFORE}{date}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in found:
        registry.write_file(folder / path.name, [path.read_bytes()])
    sync_folder(folder)
    sync_folder(memory)
    return True


__all__ = ["Loaded", "TooNew", "load"]
