"""What a client can ask, once for all faces: arguments -> request, answer -> result.

Each function returns a `Call`; a face's method is a `Call` carried out, and takes over this function's
signature and text. Errors are those of `milk_client.errors`: any call may raise NoDaemon, Timeout,
Invalid, TooLarge, StorageFull and VersionMismatch; what else it raises stands with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from . import wire
from .errors import Invalid, MilkError

T = TypeVar("T")


class Recording(Struct, frozen=True, kw_only=True):
    """What became of a statement."""

    id: str
    outcome: wire.Outcome
    percept: wire.Percept
    near: list[wire.Near]
    """Percepts that say almost the same, each with the reason why it is not the same."""
    superseded: str = ""
    """The id that ``replaces`` archived."""
    conflicts_with: str = ""
    """The global that the text contradicts and that an agent may not change by its word."""


class Block(Struct, frozen=True, kw_only=True):
    """The block to put before a prompt: its text, what stands in it, how many the budget dropped."""

    text: str
    percepts: list[wire.Percept]
    dropped: int


Ref = str | wire.PerceptRecord | Recording
"""A percept: its id or a prefix of it, with or without ``#``, or an object that has it."""


class Call(Generic[T]):
    """A request and how to read what comes back. ``take`` gets the answers, one unless ``paged``."""

    __slots__ = ("kind", "paged", "request", "take")

    def __init__(
        self,
        request: wire.Request,
        kind: type[wire.Reply],
        take: Callable[[list[Any]], T],
        *,
        paged: bool = False,
    ) -> None:
        self.request = request
        self.kind = kind
        self.take = take
        self.paged = paged

    def next_request(self, answer: wire.Answer) -> wire.Request | None:
        """The request for the page after ``answer``; None if that was all. Raises MilkError if misplaced."""
        if not isinstance(answer, self.kind):
            raise MilkError(
                f"The daemon answered {type(self.request).__name__.lower()!r} with {type(answer).__name__.lower()!r}."
            )
        after = getattr(answer, "next", "") if self.paged else ""
        if not after or after == getattr(self.request, "after", ""):
            return None
        self.request = msgspec.structs.replace(self.request, after=after)
        return self.request


def ident(ref: Ref, field: str) -> str:
    """The id of what a caller calls a percept. Raises Invalid naming ``field``."""
    text = ref if isinstance(ref, str) else getattr(ref, "id", None)
    if not isinstance(text, str) or not text.strip().removeprefix("#"):
        raise Invalid(f"{field} must be a percept or its id, not {ascii(ref)[:80]}.", field=field)
    return text.strip().removeprefix("#")


def _optional(ref: Ref | None, field: str) -> str:
    return "" if ref is None or ref == "" else ident(ref, field)


def _recording(answers: list[wire.Recorded]) -> Recording:
    answer = answers[0]
    return Recording(
        id=answer.percept.id,
        outcome=answer.outcome,
        percept=answer.percept,
        near=answer.near,
        superseded=answer.superseded,
        conflicts_with=answer.conflicts_with,
    )


def _changed(request: wire.Request) -> Call[wire.Percept]:
    def take(answers: list[wire.Changed]) -> wire.Percept:
        return answers[0].percept

    return Call(request, wire.Changed, take)


def _whole(request: wire.Request, kind: type[T]) -> Call[T]:
    """The answer itself is the result."""

    def take(answers: list[T]) -> T:
        return answers[0]

    return Call(request, kind, take)  # type: ignore[arg-type]  # every T here is a Reply


def _pass(request: wire.Request) -> Call[wire.Report]:
    def take(answers: list[wire.Passed]) -> wire.Report:
        return answers[0].report

    return Call(request, wire.Passed, take)


def _done(request: wire.Request) -> Call[None]:
    def take(answers: list[wire.Done]) -> None:  # noqa: ARG001  # the answer says nothing more
        return None

    return Call(request, wire.Done, take)


# ---------------------------------------------------------------- state and recall


def record(
    content: str,
    *,
    producer: wire.Producer | None = None,
    consumer: wire.Consumer = "",
    subject: str = "",
    roles: Mapping[str, str] | None = None,
    core: bool = False,
    same_as: Ref | None = None,
    replaces: Ref | None = None,
) -> Call[Recording]:
    """State something. ``same_as`` reinforces that percept whatever the words; ``replaces`` takes its place.

    Without ``producer`` the role is it. Raises Refused where the caller may not change the percept named.
    """
    if roles is not None and not isinstance(roles, Mapping):
        raise Invalid("roles: is not a mapping of names to texts", field="roles")
    request = wire.Record(
        content=content,
        producer=producer,
        consumer=consumer,
        subject=subject,
        roles=dict(roles or {}),
        core=core,
        same_as=_optional(same_as, "same_as"),
        replaces=_optional(replaces, "replaces"),
    )
    return Call(request, wire.Recorded, _recording)


def learn(content: str, *, producer: wire.Producer | None = None, subject: str = "") -> Call[Recording]:
    """State something that holds for good: core and global, neither decayed nor pruned."""
    return record(content, producer=producer, subject=subject, core=True)


def get(query: str, *, min_confidence: float | None = None, max_results: int | None = None) -> Call[list[wire.Percept]]:
    """Recall what matches ``query``, best first; counts as use."""

    def take(answers: list[wire.Percepts]) -> list[wire.Percept]:
        return answers[0].percepts

    request = wire.Get(query=query, min_confidence=min_confidence, max_results=max_results)
    return Call(request, wire.Percepts, take)


def inject(prompt: str, *, relevant: bool = False) -> Call[Block]:
    """The block to put before ``prompt``; ``relevant`` keeps only what fits it, and core. Counts as use."""

    def take(answers: list[wire.Injected]) -> Block:
        answer = answers[0]
        return Block(text=answer.text, percepts=answer.percepts, dropped=answer.dropped)

    return Call(wire.Inject(prompt=prompt, relevant=relevant), wire.Injected, take)


# ---------------------------------------------------------------- change


def link(source: Ref, target: Ref, relation: wire.Relation, *, supersede: bool = False) -> Call[wire.Linked]:
    """Make an edge: ``.edge``, and ``.created`` false when it was there.

    ``supersede`` with ``updates`` archives the target.
    """
    request = wire.Link(
        source=ident(source, "source"), target=ident(target, "target"), relation=relation, supersede=supersede
    )
    return _whole(request, wire.Linked)


def unlink(source: Ref, target: Ref, relation: wire.Relation | None = None) -> Call[int]:
    """Remove the edges from ``source`` to ``target`` (of one relation, or all); how many there were."""

    def take(answers: list[wire.Linked]) -> int:
        return answers[0].removed

    request = wire.Unlink(source=ident(source, "source"), target=ident(target, "target"), relation=relation)
    return Call(request, wire.Linked, take)


def forget(*targets: Ref) -> Call[wire.Forgotten]:
    """Remove percepts and their content everywhere: ``.ids``, and what they had ``.superseded``."""
    return _whole(wire.Forget(ids=[ident(target, "ids") for target in targets]), wire.Forgotten)


def edit(target: Ref, content: str) -> Call[wire.Percept]:
    """Replace a percept's content; the percept as it is now."""
    return _changed(wire.Edit(target=ident(target, "target"), content=content))


def pin(target: Ref) -> Call[wire.Percept]:
    """Make a percept core."""
    return _changed(wire.Pin(target=ident(target, "target")))


def unpin(target: Ref) -> Call[wire.Percept]:
    """Take core away."""
    return _changed(wire.Unpin(target=ident(target, "target")))


def restore(target: Ref) -> Call[wire.Percept]:
    """Bring an archived percept back."""
    return _changed(wire.Restore(target=ident(target, "target")))


def turn() -> Call[wire.Report]:
    """The turn signal: the run's pass, and its report."""
    return _pass(wire.Turn())


def flush() -> Call[None]:
    """Return when the JSON files hold everything answered so far."""
    return _done(wire.Flush())


# ---------------------------------------------------------------- look (not use)


def list_(
    *,
    scope: wire.Scope = "",
    producer: wire.Producer | None = None,
    min_w: float | None = None,
    pattern: str = "",
    all_sessions: bool = False,
) -> Call[list[wire.Percept]]:
    """All living percepts that fit; not use."""

    def take(answers: list[wire.Percepts]) -> list[wire.Percept]:
        return [percept for answer in answers for percept in answer.percepts]

    request = wire.List(scope=scope, producer=producer, min_w=min_w, pattern=pattern, all_sessions=all_sessions)
    return Call(request, wire.Percepts, take, paged=True)


def show(target: Ref) -> Call[wire.Shown]:
    """One percept, living or archived, with its edges and engram; not use."""
    return _whole(wire.Show(target=ident(target, "target")), wire.Shown)


def explain(target: Ref) -> Call[wire.Explained]:
    """Why a percept has the strength, rank and scope it has, and what will become of it."""
    return _whole(wire.Explain(target=ident(target, "target")), wire.Explained)


def status() -> Call[wire.Statused]:
    """How the daemon and the memory are."""
    return _whole(wire.Status(), wire.Statused)


def conflicts() -> Call[list[wire.Conflict]]:
    """What contradicts what."""

    def take(answers: list[wire.ConflictList]) -> list[wire.Conflict]:
        return answers[0].conflicts

    return Call(wire.Conflicts(), wire.ConflictList, take)


def archive(*, pattern: str = "", all_sessions: bool = False) -> Call[list[wire.Archived]]:
    """What the model let go, of the global scope and the session, newest first."""

    def take(answers: list[wire.ArchivedList]) -> list[wire.Archived]:
        return [entry for answer in answers for entry in answer.entries]

    return Call(wire.ArchiveList(pattern=pattern, all_sessions=all_sessions), wire.ArchivedList, take, paged=True)


# ---------------------------------------------------------------- tools alone


def consolidate(*, session: str = "", run: str = "") -> Call[wire.Report]:
    """A pass now, in the name of ``run`` or of nobody's run."""
    return _pass(wire.Consolidate(session=session, run=run))


def begin_run(run: str, *, session: str = "", role: wire.Role = "", pid: int = 0) -> Call[wire.Welcome]:
    """Begin a run for the process ``pid`` (0 = the caller's), or go on with it; ``.run`` is its id."""
    request = wire.Attach(protocol=wire.PROTOCOL, version=wire.VERSION, run=run, session=session, role=role, pid=pid)
    return _whole(request, wire.Welcome)


def end_run(run: str) -> Call[wire.Passed]:
    """End a run; the report of its exit pass. Raises UnknownRun."""
    return _whole(wire.Detach(run=run), wire.Passed)


def sessions() -> Call[list[wire.SessionLine]]:
    """The sessions there are."""

    def take(answers: list[wire.SessionList]) -> list[wire.SessionLine]:
        return answers[0].sessions

    return Call(wire.Sessions(), wire.SessionList, take)


def rename_session(old: str, new: str) -> Call[None]:
    """Give a session another name. Raises NotFound, Refused."""
    return _done(wire.RenameSession(old=old, new=new))


def merge_session(source: str, into: str) -> Call[None]:
    """Move everything of one session into another and remove the first."""
    return _done(wire.MergeSession(source=source, into=into))


def export(scope: str, part: wire.Part) -> Call[list[bytes]]:
    """A part of the store, each item as the JSON text that stands in its file."""

    def take(answers: list[wire.Exported]) -> list[bytes]:
        return [item for answer in answers for item in answer.items]

    return Call(wire.Export(scope=scope, part=part), wire.Exported, take, paged=True)


def config() -> Call[wire.ConfigShown]:
    """The config in force."""
    return _whole(wire.ShowConfig(), wire.ConfigShown)


def shutdown() -> Call[None]:
    """Stop the daemon; answered before it stops."""
    return _done(wire.Shutdown())
