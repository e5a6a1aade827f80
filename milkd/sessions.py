"""Sessions as a whole: renamed, merged, named without doubt (M3)."""

from __future__ import annotations

from milk_client.errors import Invalid, NotFound, Refused
from milk_client.paths import check_session
from milk_client.wire import SeenLine, SessionLine
from msgspec.structs import replace

from milkd.cells import FileExtra
from milkd.keeping import Change, engram_of
from milkd.rules.percept import GLOBAL, Held
from milkd.store import Store


def checked(store: Store, name: str, field: str = "session") -> str:
    """A session's name; raises Invalid for one that is none, or that differs from another only by case."""
    check_session(name)
    if name not in store.scopes:
        folded = name.casefold()
        twin = next((other for other in store.sessions() if other.casefold() == folded), None)
        if twin is not None and twin != name:
            raise Invalid(
                f"{field}: {name!r} differs from the session {twin!r} only by case",
                hint=f"Use {twin!r}.",
                field=field,
            )
    return name


def lines(store: Store) -> list[SessionLine]:
    """A line for each session."""
    runs = store.clocks.live_runs()
    found = []
    for name in store.sessions():
        found.append(
            SessionLine(
                session=name,
                percepts=store.living_count(name),
                archived=len(store.scope(name).archived),
                clock_s=store.clocks.reading(name),
                live_runs=sum(1 for run in runs if run.session == name),
            )
        )
    return found


def rename(change: Change, old: str, new: str) -> None:
    """Give a session another name. Raises NotFound, Invalid (the name is taken) or Refused (live runs)."""
    store = change.store
    _movable(store, old, "old")
    checked(store, new, "new")
    if new in store.sessions():
        raise Invalid(
            f"new: there is a session {new!r} already",
            hint=f"Merge them with `milkctl sessions merge {old} {new}`.",
            field="new",
        )
    store.clocks.set_reading(new, store.clocks.reading(old))
    _move(change, old, new)


def merge(change: Change, source: str, into: str) -> None:
    """Move everything of one session into another. Raises NotFound, Invalid or Refused (live runs)."""
    store = change.store
    _movable(store, source, "source")
    if into not in store.sessions():
        raise NotFound(f"into: there is no session {into!r}", field="into", hint="See `milkctl sessions`.")
    if source == into:
        raise Invalid("into: is the same session", field="into")
    _move(change, source, into)


def _movable(store: Store, name: str, field: str) -> None:
    if name not in store.sessions():
        raise NotFound(f"{field}: there is no session {name!r}", field=field, hint="See `milkctl sessions`.")
    if store.clocks.live_runs(name):
        raise Refused(f"{field}: session {name!r} has live runs", field=field, hint="Wait until they have ended.")


def _move(change: Change, old: str, new: str) -> None:
    """Every percept keeps its present strength: it now holds as of the other session's clock (M9)."""
    store = change.store
    scope = store.scope(old)
    for engram_id in list(scope.engrams.values()):
        group = store.groups[engram_id]
        there = store.scope(new).engrams.get(group.label)
        if there is None:
            store.put("engram", engram_id, replace(group, scope=new))
        elif group.extra:
            other = store.groups[there]
            store.put("engram", there, replace(other, extra={**group.extra, **other.extra}))
    for percept_id in list(scope.living):
        store.put("percept", percept_id, _moved(change, store.percepts[percept_id], new))
    for percept_id in list(scope.archived):
        gone = store.archive[percept_id]
        store.put("archive", percept_id, replace(gone, held=_moved(change, gone.held, new)))
    for engram_id in list(scope.engrams.values()):
        store.put("engram", engram_id, None)
    store.put("pass", old, None)
    for key, line in list(store.seen.items()):
        if line.session == old:
            there = f"{new} {line.role}"
            store.put("seen", key, None)
            store.put("seen", there, _later(replace(line, session=new), store.seen.get(there)))
    extra = store.files.get(old)
    if extra is not None:
        known = store.files.get(new, FileExtra())
        store.put("file", new, FileExtra({**extra.top, **known.top}, {**extra.own, **known.own}))
        store.put("file", old, None)
    store.drop_session(old)
    change.tell("edited", session=new, detail=f"session {old} is now {new}")


def _later(line: SeenLine, other: SeenLine | None) -> SeenLine:
    """The later of each time of two lines."""
    if other is None:
        return line
    names = ("last_recorded", "last_recalled", "last_turn")
    return replace(line, **{name: max(getattr(line, name), getattr(other, name)) for name in names})


def _moved(change: Change, held: Held, new: str) -> Held:
    store = change.store
    record = held.record
    group = store.groups.get(record.engram_id)
    engram = engram_of(change, group.label, new) if group and group.scope != GLOBAL else record.engram_id
    return replace(
        held,
        record=replace(record, w=store.present(held), engram_id=engram),
        scope=new,
        at_s=store.clocks.reading(new),
    )
