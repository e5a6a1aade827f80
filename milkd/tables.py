"""The tables of cells, key -> frozen struct, and what is derived from them: indexes, counters, horizons.

`Tables._set` is the one place where a cell changes. It keeps the derived true, so that a request, an undo, a
replay and a load all agree. Reading is here too; writing goes through `store.py`.
"""

from __future__ import annotations

from typing import Any

from milk_client.wire import SeenLine
from msgspec.structs import replace

from milkd.cells import FileExtra, PassMark, Remembered, Table
from milkd.clocks import Clocks
from milkd.config import Memory
from milkd.ids import Prefixes
from milkd.rules import weight
from milkd.rules.percept import GLOBAL, Gone, Group, Held, Link, unstamp
from milkd.rules.present import Present
from milkd.scopes import Scope

FORGOTTEN = "forgotten:"
"""Begins the note that a percept was forgotten, and when: no file may bring it back (M20)."""
UNSCRUBBED = "unscrubbed:"
"""Begins the note that it may still stand in some file."""


class Tables(Present):
    """What is remembered and what follows from it."""

    def __init__(self, knobs: Memory) -> None:
        self.clocks = Clocks()
        super().__init__(knobs, self.clocks.reading)
        self.percepts: dict[str, Held] = {}
        self.archive: dict[str, Gone] = {}
        self.links: dict[str, Link] = {}
        self.groups: dict[str, Group] = {}
        self.replies: dict[str, dict[int, Remembered]] = {}
        self.seen: dict[str, SeenLine] = {}
        self.marks: dict[str, PassMark] = {}
        self.meta: dict[str, float] = {}
        self.files: dict[str, FileExtra] = {}
        self.merged: dict[str, str] = {}
        """Ids of percepts that became one with a global, and its id (M17)."""
        self.scopes: dict[str, Scope] = {GLOBAL: Scope(GLOBAL, self)}
        self.dirty: set[str] = set()
        self.contradictions: set[str] = set()
        self.revived = False
        self._merged_into: dict[str, dict[str, None]] = {}
        self._adjacent: dict[str, dict[str, None]] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._superseded: dict[str, dict[str, None]] = {}
        self._prefixes = Prefixes()
        self._edge_places: dict[str, str] = {}
        self._seq = 0

    # ------------------------------------------------------------ cells

    def _get(self, table: Table, key: str) -> Any:
        match table:
            case "percept":
                return self.percepts.get(key)
            case "archive":
                return self.archive.get(key)
            case "edge":
                return self.links.get(key)
            case "engram":
                return self.groups.get(key)
            case "run":
                return self.clocks.runs.get(key)
            case "sitting":
                return self.clocks.sittings.get(int(key))
            case "reply":
                client, _, number = key.rpartition(" ")
                return self.replies.get(client, {}).get(int(number))
            case "seen":
                return self.seen.get(key)
            case "pass":
                return self.marks.get(key)
            case "meta":
                return self.meta.get(key)
            case "file":
                return self.files.get(key)
            case "merged":
                return self.merged.get(key)
            case "clock":
                return self.clocks.reading(key)

    def _set(self, table: Table, key: str, value: Any) -> None:
        match table:
            case "percept":
                self._set_percept(key, value)
            case "archive":
                self._set_archived(key, value)
            case "edge":
                self._set_link(key, value)
            case "engram":
                self._set_group(key, value)
            case "run":
                self.clocks.put_run(key, value)
            case "sitting":
                self.clocks.put_sitting(int(key), value)
            case "reply":
                self._set_reply(key, value)
            case "seen":
                _set_or_drop(self.seen, key, value)
            case "pass":
                _set_or_drop(self.marks, key, value)
            case "meta":
                _set_or_drop(self.meta, key, value)
            case "file":
                _set_or_drop(self.files, key, value)
                self.dirty.add(key)
            case "clock":
                self.clocks.set_reading(key, value)
            case "merged":
                self._set_merged(key, value)

    def _set_percept(self, key: str, new: Held | None) -> None:
        old = self.percepts.get(key)
        stays = old is not None and new is not None and _same_place(old, new)
        if old is not None:
            self.scope(old.scope).leave(old, keep_text=stays)
            _take_out(self._members, old.record.engram_id, key)
            self.dirty.add(old.scope)
        if new is None:
            self.percepts.pop(key, None)
            self._unname(key)
        else:
            self.percepts[key] = new
            self._seq = max(self._seq, new.seq)
            if old is None:
                self._prefixes.add(key)
            self.scope(new.scope).enter(new, indexed=stays)
            if new.record.engram_id:
                self._members.setdefault(new.record.engram_id, {})[key] = None
            self.dirty.add(new.scope)
        if (old is None) != (new is None) or (old and new and old.scope != new.scope):
            self._ends_moved(key)

    def _set_archived(self, key: str, new: Gone | None) -> None:
        old = self.archive.get(key)
        if old is not None:
            scope = self.scope(old.held.scope)
            scope.archived.remove(key, old.held.record.content)
            scope.let_go.drop(key)
            _take_out(self._superseded, old.successor, key)
        if new is None:
            self.archive.pop(key, None)
            self.revived = True
            self._unname(key)
        else:
            self.archive[key] = new
            self._prefixes.add(key)
            scope = self.scope(new.held.scope)
            scope.archived.add(key, new.held.record.content)
            scope.let_go.put(key, new.at_ts)
            if new.successor:
                self._superseded.setdefault(new.successor, {})[key] = None
        self.dirty.add("archive")

    def _set_merged(self, key: str, new: str | None) -> None:
        old = self.merged.get(key)
        if old is not None:
            self._merged_into[old].pop(key)
            if not self._merged_into[old]:
                del self._merged_into[old]
        _set_or_drop(self.merged, key, new)
        if new is None:
            self._unname(key)
        else:
            self._prefixes.add(key)
            self._merged_into.setdefault(new, {})[key] = None

    def _unname(self, key: str) -> None:
        if key not in self.percepts and key not in self.archive and key not in self.merged:
            self._prefixes.discard(key)

    def _set_link(self, key: str, new: Link | None) -> None:
        old = self.links.get(key)
        if old is not None:
            for end in (old.edge.source, old.edge.target):
                _take_out(self._adjacent, end, key)
            self._unplace(key)
        if new is None:
            self.links.pop(key, None)
            self.contradictions.discard(key)
        else:
            self.links[key] = new
            self._seq = max(self._seq, new.seq)
            for end in (new.edge.source, new.edge.target):
                self._adjacent.setdefault(end, {})[key] = None
            self._place(key)

    def _ends_moved(self, percept_id: str) -> None:
        """Edges follow their ends (M19)."""
        for key in self._adjacent.get(percept_id, {}):
            self._unplace(key)
            self._place(key)

    def _place(self, key: str) -> None:
        link = self.links[key]
        if not self.in_force(link):
            self.dirty.add("archive")
            return
        scope = self.scope(self.edge_scope(link))
        self._edge_places[key] = scope.name
        scope.edges.put(key, link.edge.made_event)
        if link.edge.propagated < weight.EDGE_SITTINGS:
            scope.acting[key] = None
        if link.edge.relation == "contradicts":
            self.contradictions.add(key)
        self.dirty.add(scope.name)

    def _unplace(self, key: str) -> None:
        # An end may just have moved, so the ends do not tell where the edge stood.
        self.contradictions.discard(key)
        place = self._edge_places.pop(key, None)
        if place is None:  # it was out of force: an archive entry carries it
            self.dirty.add("archive")
            return
        scope = self.scopes[place]
        scope.edges.drop(key)
        scope.acting.pop(key, None)
        self.dirty.add(place)

    def _set_group(self, key: str, new: Group | None) -> None:
        old = self.groups.get(key)
        if old is not None:
            scope = self.scope(old.scope)
            if scope.engrams.get(old.label) == key:
                del scope.engrams[old.label]
            scope.groups.drop(key)
            self.dirty.add(old.scope)
        if new is None:
            self.groups.pop(key, None)
        else:
            self.groups[key] = new
            scope = self.scope(new.scope)
            scope.engrams[new.label] = key
            scope.groups.put(key, unstamp(new.created_at))
            self.dirty.add(new.scope)

    def _set_reply(self, key: str, new: Remembered | None) -> None:
        client, _, number = key.rpartition(" ")
        if new is None:
            mine = self.replies.get(client, {})
            mine.pop(int(number), None)
            if not mine:
                self.replies.pop(client, None)
            return
        mine = self.replies.setdefault(client, {})
        for done in [n for n in mine if n < new.ack]:
            del mine[done]
        mine[int(number)] = new

    # ------------------------------------------------------------ reading

    def scope(self, name: str) -> Scope:
        """What is derived for a scope, made on first use."""
        scope = self.scopes.get(name)
        if scope is None:
            scope = self.scopes[name] = Scope(name, self)
        return scope

    def sessions(self) -> list[str]:
        """Every session that has a percept, an archived one, a clock or a live run, by name."""
        names = {name for name, s in self.scopes.items() if len(s.living) or len(s.archived)}
        names.update(self.clocks.covers)
        names.update(run.session for run in self.clocks.live_runs())
        names.discard(GLOBAL)
        return sorted(names)

    def in_force(self, link: Link) -> bool:
        """Whether both ends live (M19)."""
        return link.edge.source in self.percepts and link.edge.target in self.percepts

    def edge_scope(self, link: Link) -> str:
        """The file an edge stands in: global when both ends are, else the session's (M19)."""
        for end in (link.edge.source, link.edge.target):
            held = self.percepts.get(end)
            if held is None:
                gone = self.archive.get(end)
                held = gone.held if gone else None
            if held is not None and held.scope != GLOBAL:
                return held.scope
        return GLOBAL

    def links_of(self, percept_id: str) -> list[Link]:
        """All edges at a percept, in the order they were made."""
        found = [self.links[key] for key in self._adjacent.get(percept_id, {})]
        return sorted(found, key=lambda link: link.seq)

    def dormant_with(self, percept_id: str) -> list[Link]:
        """The edges that an archive entry carries: of two archived ends the source has them (M4, M19)."""
        return [
            link
            for link in self.links_of(percept_id)
            if link.edge.source == percept_id or link.edge.source not in self.archive
        ]

    def archived_with_links(self) -> list[tuple[Gone, list[Link]]]:
        """Every archive entry with the edges that it carries."""
        linked = self._adjacent
        return [(gone, self.dormant_with(i) if i in linked else []) for i, gone in self.archive.items()]

    def blocked(self, percept_id: str) -> bool:
        """Whether a live `contradicts` edge touches it (M17)."""
        return any(key in self.contradictions for key in self._adjacent.get(percept_id, {}))

    def members(self, engram_id: str) -> list[Held]:
        """The living percepts of an engram, in order of birth."""
        ids = self._members.get(engram_id, {})
        return sorted((self.percepts[i] for i in ids), key=lambda held: held.seq)

    def noted(self, mark: str) -> list[str]:
        """The ids of percepts with such a note (`FORGOTTEN`, `UNSCRUBBED`)."""
        return [key.removeprefix(mark) for key in self.meta if key.startswith(mark)]

    def has_members(self, engram_id: str) -> bool:
        """Whether any living percept is of an engram."""
        return engram_id in self._members

    def superseded_by(self, percept_id: str) -> list[str]:
        """The archived percepts that name it as their successor."""
        return list(self._superseded.get(percept_id, ()))

    def resolve(self, given: str, field: str = "id") -> str:
        """The full id of an id or a prefix of it, living or archived; of a merged one the other's (M17, M20)."""
        return self.now_called(self._prefixes.resolve(given, field, self.percepts, self.archive, self.merged))

    def now_called(self, percept_id: str) -> str:
        """The id under which a percept is known now: a merged one bears the global's (M17)."""
        if percept_id in self.percepts or percept_id in self.archive:
            return percept_id
        return self.merged.get(percept_id, percept_id)

    def once_called(self, percept_id: str) -> list[str]:
        """The ids of those that were merged into a percept (M17)."""
        return list(self._merged_into.get(percept_id, {}))

    def _retune(self, knobs: Memory) -> None:
        """Other knobs are in force. What faded until now did so under the old ones: the points move to now (M9)."""
        if knobs.fading != self.knobs.fading:
            for percept_id, held in self.percepts.items():
                self.percepts[percept_id] = self.as_of_now(held)
            for percept_id, gone in self.archive.items():
                self.archive[percept_id] = replace(gone, held=self.as_of_now(gone.held))
            self.dirty.update(self.scopes, ["archive"])
        self._derive_anew(knobs)

    def _derive_anew(self, knobs: Memory) -> None:
        self.knobs = knobs
        for scope in self.scopes.values():
            scope.derive_anew(self.percepts[percept_id] for percept_id in scope.living)

    def due(self, scope: Scope) -> list[Held]:
        """Percepts of a scope that are to be pruned or archived as stale."""
        return scope.due(self.percepts)

    def living_count(self, name: str) -> int:
        """How many of a scope's percepts are among the living now, swept or not (M9)."""
        scope = self.scopes.get(name)
        if scope is None:
            return 0
        faded = 0 if scope.is_global else sum(1 for held in self.due(scope) if not self.spared(held))
        return len(scope.living) - faded


def _set_or_drop(table: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _take_out(sets: dict[str, dict[str, None]], name: str, key: str) -> None:
    """Take a key out of the set of that name, and the set itself with its last key."""
    keys = sets.get(name)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del sets[name]


def _same_place(old: Held, new: Held) -> bool:
    one, other = old.record, new.record
    return old.scope == new.scope and one.content == other.content and one.created_at == other.created_at
