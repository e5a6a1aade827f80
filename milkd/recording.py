"""Stating, restating, replacing and changing by a person's word (M11, M14, M20)."""

from __future__ import annotations

from typing import Any, Literal

from milk_client.errors import Invalid, NotFound, Refused, TooLarge
from milk_client.wire import Outcome, PerceptRecord, Producer, Record
from msgspec import Struct

from milkd.clocks import Run
from milkd.keeping import (
    Change,
    at_least_birth,
    check_core_room,
    connect,
    corroborate,
    engram_of,
    give_birth,
    make_core,
    move_edges,
    revise,
    revive,
    send_to_archive,
    used,
)
from milkd.ranking import AUDIENCE
from milkd.rules import text, weight
from milkd.rules.percept import GLOBAL, Gone, Held, unstamp
from milkd.store import Store

REVIVABLE = ("pruned", "stale", "evicted")
"""What a restatement brings back; `superseded` and `summarised` only a person does (M11, M4)."""
NEAR_SHOWN = 5
ROLE_NAMES = frozenset({"action", "agent", "recipient", "theme", "when", "where"})


class Caller(Struct, frozen=True):
    """Who asks: a run of a session in a role, or a tool ("" sees all and writes as ``user``)."""

    client: str
    session: str
    role: str
    run: Run | None = None

    @property
    def producer(self) -> Producer:
        """Who a text is asserted by if it does not say (M1)."""
        return "user" if self.role in ("", "user") else self.role  # type: ignore[return-value]

    @property
    def sitting(self) -> int | None:
        """The sitting that may corroborate; none outside any run (M12)."""
        return self.run.sitting if self.run else None

    @property
    def sees_all_sessions(self) -> bool:
        """Whether it may look beyond its own session: a person's tool, not below an agent."""
        return self.run is None and self.role in ("", "user")

    @property
    def audience(self) -> int | None:
        """What this caller may see, as `milkd.ranking` counts it; None = all."""
        return None if self.role in ("", "user") else AUDIENCE.get(self.role, 0)

    def sees(self, record: PerceptRecord) -> bool:
        """Whether a percept is for this caller's eyes (M1)."""
        return not record.consumer or self.role in ("", "user", record.consumer)


class Recording(Struct, frozen=True):
    """What became of a statement. Ids only: it is remembered for retries."""

    id: str
    outcome: Outcome
    near: tuple[tuple[str, str], ...] = ()
    superseded: str = ""
    conflicts_with: str = ""


class _Statement(Struct, frozen=True):
    content: str
    analysed: text.Text
    producer: Producer
    ask: Record


class _Match(Struct, frozen=True):
    held: Held
    reason: str
    gone: Gone | None = None


def record(change: Change, caller: Caller, ask: Record) -> Recording:
    """Store a statement, or reinforce what it restates (M11).

    Raises Invalid, TooLarge, NotFound, Ambiguous or Refused; nothing is changed then.
    """
    statement = _checked(change.store, caller, ask)
    if ask.same_as:
        return _same_as(change, caller, statement)
    if ask.replaces:
        return _replace(change, caller, statement)
    match, near = find_match(change.store, caller, statement.analysed, statement.producer)
    if match is not None:
        return _restate(change, caller, statement, match)
    return _new(change, caller, statement, near)


def checked_content(store: Store, content: str) -> str:
    """The content, trimmed; raises Invalid or TooLarge naming the field (M1)."""
    trimmed = content.strip()
    if not trimmed:
        raise Invalid("content: is empty", field="content", hint="State one fact in a sentence.")
    size = len(trimmed.encode())
    if size > store.knobs.max_content_bytes:
        raise TooLarge(
            f"content: has {size} bytes; a percept has at most {store.knobs.max_content_bytes}",
            field="content",
        )
    return trimmed


def _checked(store: Store, caller: Caller, ask: Record) -> _Statement:
    content = checked_content(store, ask.content)
    unknown = sorted(set(ask.roles) - ROLE_NAMES)
    if unknown:
        raise Invalid(
            f"roles: {unknown[0][:40]!r} is not a role; there are {', '.join(sorted(ROLE_NAMES))}",
            field="roles",
        )
    if any(len(value.encode()) > 200 for value in (*ask.roles.values(), ask.subject)):
        raise TooLarge("subject and roles: at most 200 bytes each", field="subject")
    if ask.core and (ask.same_as or ask.replaces):
        raise Invalid("core: does not go with same_as or replaces; pin the percept instead", field="core")
    if ask.same_as and ask.replaces:
        raise Invalid("same_as: does not go with replaces", field="same_as")
    return _Statement(content, text.analyse(content), ask.producer or caller.producer, ask)


# ---------------------------------------------------------------- finding what it restates


def find_match(
    store: Store, caller: Caller, newer: text.Text, producer: str, *, living_only: bool = False
) -> tuple[_Match | None, list[tuple[str, str]]]:
    """The percept that a text restates, if any, and the living near misses, best first (M14).

    A living percept goes before an archived one; then the highest overlap, ties to the older.
    """
    best: tuple[tuple[Any, ...], _Match] | None = None
    near: list[tuple[tuple[Any, ...], str, str]] = []
    threshold = store.knobs.duplicate_threshold
    for held, gone in _candidates(store, caller, newer, living_only):
        verdict = text.compare(
            text.analyse(held.record.content),
            newer,
            older_producer=held.record.producer,
            newer_producer=producer,
            older_settled=held.scope == GLOBAL or held.record.evidence > 0,
            threshold=threshold,
        )
        alive = gone is None and store.lives(held)
        if living_only and not alive:
            continue
        order = (not alive, -verdict.overlap, unstamp(held.record.created_at), held.seq, held.id)
        if verdict.kind == "restatement":
            if best is None or order < best[0]:
                best = (order, _Match(held, verdict.reason, gone))
        elif verdict.kind == "near_miss" and alive:
            near.append((order, held.id, verdict.reason))
    near.sort()
    return (best[1] if best else None), [(i, reason) for _, i, reason in near[:NEAR_SHOWN]]


def _candidates(store: Store, caller: Caller, newer: text.Text, living_only: bool) -> list[tuple[Held, Gone | None]]:
    threshold = store.knobs.duplicate_threshold
    found: list[tuple[Held, Gone | None]] = []
    for name in (GLOBAL, caller.session):
        scope = store.scopes.get(name)
        if scope is None:
            continue
        for percept_id in scope.living.similar(newer.content, newer.stems, threshold):
            found.append((store.percepts[percept_id], None))
        if not living_only:
            for percept_id in scope.archived.similar(newer.content, newer.stems, threshold):
                gone = store.archive[percept_id]
                if gone.reason in REVIVABLE:
                    found.append((gone.held, gone))
    return [(held, gone) for held, gone in found if caller.sees(held.record)]


def living(store: Store, caller: Caller, given: str, field: str) -> Held:
    """The living percept of an id, visible to the caller; a tool that speaks for nobody sees every session.

    Raises NotFound (also where it is archived), Invalid or Ambiguous.
    """
    percept_id = store.resolve(given, field)
    held = store.percepts.get(percept_id)
    if held is None or not store.lives(held):
        raise NotFound(
            f"{field}: #{percept_id[:8]} is in the archive",
            hint=f"Bring it back with `milkctl restore {percept_id[:8]}`.",
            field=field,
        )
    check_visible(caller, held, field)
    return held


def check_visible(caller: Caller, held: Held, field: str) -> None:
    """Raise NotFound for what the caller may not see: other sessions and other consumers' percepts."""
    outside = held.scope not in (GLOBAL, caller.session) and (caller.run is not None or caller.role not in ("", "user"))
    if outside or not caller.sees(held.record):
        raise NotFound(f"{field}: no percept of that id is visible here", field=field)


# ---------------------------------------------------------------- the outcomes


def _new(change: Change, caller: Caller, statement: _Statement, near: list[tuple[str, str]]) -> Recording:
    ask = statement.ask
    if ask.core:
        check_core_room(change.store)
    held = _born(change, statement, GLOBAL if ask.core else caller.session, core=ask.core, consumer=ask.consumer)
    change.tell("recorded", held)
    return Recording(held.id, "new", tuple(near))


def _born(change: Change, statement: _Statement, scope: str, *, core: bool, consumer: str) -> Held:
    strength = weight.birth(statement.producer, core)
    change.begin()  # a birth is a change: it takes its number even if nothing else asks for it
    fields = PerceptRecord(
        id=change.new_id(),
        content=statement.content,
        producer=statement.producer,
        consumer=consumer,  # type: ignore[arg-type]
        w=strength,
        w_confirmed=strength,
        roles=dict(statement.ask.roles),
        created_at=change.stamp,
        updated_at=change.stamp,
        core=core,
    )
    return give_birth(change, fields, scope, statement.ask.subject)


def _restate(change: Change, caller: Caller, statement: _Statement, match: _Match) -> Recording:
    """A restatement reinforces; one of an archived percept brings it back first (M11)."""
    store, ask, held = change.store, statement.ask, match.held
    makes_core = ask.core and not held.record.core
    if makes_core and statement.producer != "user":
        _refuse_agent(statement.producer, held, "make core")
    if makes_core:
        check_core_room(store)
    outcome: Literal["reinforced", "restored"] = "reinforced"
    if match.gone is not None:
        held, outcome = revive(change, match.gone), "restored"
    elif not store.lives(held):  # not yet swept, but archived to everybody who looks (M9)
        held, outcome = revive(change, send_to_archive(change, held, "pruned")), "restored"
    content = statement.content if match.reason == "longer" else None
    held = reinforce(change, caller, held, statement, content=content, counts=match.reason == "")
    if outcome == "restored":
        w, confirmed = at_least_birth(held.record, store.present(held), store.confirmed(held))
        held = revise(change, held, w, confirmed)
    if makes_core:
        held = make_core(change, held)
    change.tell(outcome, held)
    return Recording(held.id, outcome)


def reinforce(
    change: Change,
    caller: Caller,
    held: Held,
    statement: _Statement,
    *,
    content: str | None = None,
    counts: bool = True,
) -> Held:
    """Strength up, idle 0, and what else a restatement brings (M11). ``counts``: evidence by M12."""
    store, record, ask = change.store, held.record, statement.ask
    w, confirmed = weight.reinforced(store.present(held), store.confirmed(held), store.knobs)
    fields: dict[str, Any] = {"updated_at": change.stamp, "last_used_at": change.stamp}
    if counts:
        fields |= corroborate(change, record, caller.sitting)
    if weight.stronger(statement.producer, record.producer):
        least = weight.birth(statement.producer, record.core)
        w, confirmed = max(w, least), max(confirmed, least)
        fields["producer"] = statement.producer
    if content is not None:
        fields["content"] = content
    if record.consumer != ask.consumer:
        fields["consumer"] = ""
    if ask.roles or ask.subject:
        fields["roles"] = {**ask.roles, **record.roles}
    if ask.subject and not record.engram_id:
        fields["engram_id"] = engram_of(change, ask.subject, held.scope)
        fields["roles"].setdefault("theme", ask.subject)
    return used(change, revise(change, held, w, confirmed, **fields))


def _same_as(change: Change, caller: Caller, statement: _Statement) -> Recording:
    """By the caller's word: reinforces that one, whatever the wording, and keeps its text (M11)."""
    store = change.store
    percept_id = store.resolve(statement.ask.same_as, "same_as")
    gone = store.archive.get(percept_id)
    held = gone.held if gone else store.percepts[percept_id]
    check_visible(caller, held, "same_as")
    if gone is not None and gone.reason not in REVIVABLE:
        raise NotFound(
            f"same_as: #{percept_id[:8]} was {gone.reason}",
            hint=f"Bring it back with `milkctl restore {percept_id[:8]}`.",
            field="same_as",
        )
    return _restate(change, caller, statement, _Match(held, "", gone))


def _replace(change: Change, caller: Caller, statement: _Statement) -> Recording:
    """By the caller's word: the new text takes the old one's place (M11)."""
    store = change.store
    old = living(store, caller, statement.ask.replaces, "replaces")
    _check_may_replace(statement.producer, old)
    match, near = find_match(store, caller, statement.analysed, statement.producer, living_only=True)
    if match is not None and match.held.id == old.id and not match.reason:  # the very words that it replaces
        return _restate(change, caller, statement, match)
    other = match if match is not None and match.held.id != old.id else None
    if old.scope == GLOBAL and statement.producer != "user":
        return _dispute(change, caller, statement, old, other)
    if other is not None:
        result = _restate(change, caller, statement, other)
        send_to_archive(change, old, "superseded", result.id)
        return Recording(result.id, result.outcome, superseded=old.id)
    new = _take_place(change, statement, old)
    change.tell("recorded", new)
    return Recording(new.id, "new", tuple(n for n in near if n[0] != old.id), superseded=old.id)


def _take_place(change: Change, statement: _Statement, old: Held) -> Held:
    record = old.record
    new = _born(change, statement, old.scope, core=record.core, consumer=record.consumer)
    if record.engram_id and not statement.ask.subject:
        roles = {**{k: v for k, v in record.roles.items() if k == "theme"}, **new.record.roles}
        new = revise(change, new, new.record.w, new.record.w, engram_id=record.engram_id, roles=roles)
    move_edges(change, old.id, new.id, contradictions=False)
    send_to_archive(change, old, "superseded", new.id)
    return new


def _check_may_replace(producer: Producer, old: Held) -> None:
    record = old.record
    if weight.stronger(record.producer, producer):
        raise Refused(
            f"replaces: #{old.id[:8]} was said by {record.producer}, which {producer} may not replace",
            field="replaces",
        )
    if record.core and producer != "user":
        raise Refused(f"replaces: #{old.id[:8]} is core; only a person may replace it", field="replaces")


def _dispute(change: Change, caller: Caller, statement: _Statement, old: Held, other: _Match | None) -> Recording:
    """An agent does not change what is global by its word alone: a conflict to be settled (M11)."""
    result = _restate(change, caller, statement, other) if other else _new(change, caller, statement, [])
    connect(change, result.id, old.id, "contradicts")
    return Recording(result.id, result.outcome, conflicts_with=old.id)


def _refuse_agent(producer: str, held: Held, verb: str) -> None:
    record = held.record
    if weight.stronger(record.producer, producer):
        raise Refused(f"an agent may not {verb} #{held.id[:8]}, which {record.producer} said", field="id")
    if held.scope == GLOBAL:
        raise Refused(f"an agent may not {verb} #{held.id[:8]}, which is global", field="id")


# ---------------------------------------------------------------- by id


def supersede(change: Change, caller: Caller, old: Held, successor: str) -> None:
    """`link … updates --supersede`: the target leaves, under the same refusals as `replaces` (A4, M11)."""
    _check_may_replace(caller.producer, old)
    if old.scope == GLOBAL and caller.producer != "user":
        raise Refused(f"an agent may not supersede #{old.id[:8]}, which is global", field="target")
    send_to_archive(change, old, "superseded", successor)


def edit(change: Change, caller: Caller, given: str, content: str) -> Held:
    """Replace a percept's content: id, scope and edges stay, evidence 0 (M20)."""
    store = change.store
    held = living(store, caller, given, "target")
    new_content = checked_content(store, content)
    producer = caller.producer
    w, confirmed = store.present(held), store.confirmed(held)
    fields: dict[str, Any] = {"content": new_content, "updated_at": change.stamp}
    fields |= {"evidence": 0, "evidence_at": "", "evidence_event": 0}
    if producer == "user":
        least = weight.birth("user", held.record.core)
        w, confirmed = max(w, least), max(confirmed, least)
        fields["producer"] = "user"
    else:
        _refuse_agent(producer, held, "edit")
    change.begin()
    held = revise(change, held, w, confirmed, **fields)
    change.tell("edited", held)
    return held


def pin(change: Change, caller: Caller, given: str) -> Held:
    """`learn` by id: a core global (M20)."""
    held = living(change.store, caller, given, "target")
    if caller.producer != "user" and not held.record.core:
        _refuse_agent(caller.producer, held, "pin")
    if not held.record.core:
        change.begin()
        held = make_core(change, held)
        change.tell("pinned", held)
    return held


def unpin(change: Change, caller: Caller, given: str) -> Held:
    """Take core away; leaves a global of strength 0.9 (M20)."""
    held = living(change.store, caller, given, "target")
    if caller.producer != "user":
        _refuse_agent(caller.producer, held, "unpin")
    if held.record.core:
        change.begin()
        held = revise(change, held, weight.UNPINNED, weight.UNPINNED, core=False)
        held = used(change, held)
        change.tell("unpinned", held)
    return held


def restore(change: Change, caller: Caller, given: str) -> Held:
    """Bring an archived percept back by a person's word: idle 0, at least its birth strength (M4)."""
    store = change.store
    percept_id = store.resolve(given, "target")
    if caller.producer != "user":
        raise Refused("an agent may not restore; restating the fact brings it back", field="target")
    gone = store.archive.get(percept_id)
    if gone is None:
        held = store.percepts[percept_id]
        if store.lives(held):
            raise Invalid(f"target: #{percept_id[:8]} is not in the archive; it lives", field="target")
        gone = send_to_archive(change, held, "pruned")
    change.begin()
    held = revive(change, gone)
    w, confirmed = at_least_birth(held.record, store.present(held), store.confirmed(held))
    held = revise(change, held, w, confirmed)
    change.tell("restored", held)
    return held
