"""The protocol, whole: what a client may ask, what the daemon answers, what it tells of its own accord.

One msgpack map a message. A request's ``op`` and a reply's ``re`` name its kind (msgspec tagged unions).
Every request carries who sends it (``by``: the client's id; a run's client has its ``run_id``), a number
of its own (``id``, from 1 up), and ``ack``: every request of this client below it has been answered, so
its outcome need not be remembered any longer. `docs/protocol.md` tells it for other languages.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

VERSION = "0.1.0"
"""The version of the distribution; a constant, for looking it up in its metadata costs a client 30 ms."""

PROTOCOL = 1
"""The protocol spoken here. The daemon speaks this one and the one before it."""

SPOKEN = frozenset({1})
"""Protocols that a daemon of this version answers."""

MAX_MESSAGE_BYTES = 1 << 20
"""Default limit of one request in bytes; the reply to a larger one is ``too_large``."""

Producer = Literal["user", "primary", "escalation", "system"]
Consumer = Literal["", "primary", "escalation"]
Role = Literal["", "primary", "escalation", "user"]
"""Who asks. "" sees all and writes as ``user`` (a person's tool)."""
Relation = Literal["extends", "updates", "derives", "contradicts"]
Reason = Literal["pruned", "stale", "evicted", "superseded", "summarised"]
Outcome = Literal["new", "reinforced", "restored"]
Scope = Literal["", "global", "session"]
"""Which percepts to list; "" = both."""
Part = Literal["percepts", "edges", "engrams", "archive"]
EventKind = Literal[
    "attached",
    "detached",
    "died",
    "silent",
    "recorded",
    "reinforced",
    "restored",
    "superseded",
    "promoted",
    "pruned",
    "archived",
    "evicted",
    "forgotten",
    "edited",
    "pinned",
    "unpinned",
    "linked",
    "unlinked",
    "pass",
    "config",
    "health",
    "stopping",
]
"""What this version tells of; a newer daemon may tell of more."""

# ---------------------------------------------------------------- nouns


NOT_IDLE = 0.0
"""The value of ``idle_seconds`` that a file leaves out: an encoder knows a default float by its identity."""


def _primary() -> Producer:
    return "primary"


def _no_roles() -> dict[str, str]:
    return {}


class PerceptRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One percept as it stands in a file (M1). Times are RFC 3339 UTC, strengths in [0, 1].

    A default that is made by a function is written out all the same: `producer` and `roles` always stand there.
    """

    id: str
    content: str
    producer: Producer = field(default_factory=_primary)
    consumer: Consumer = ""
    w: float
    w_confirmed: float | None = None
    roles: dict[str, str] = field(default_factory=_no_roles)
    engram_id: str = ""
    created_at: str
    updated_at: str
    core: bool = False
    evidence: int = 0
    evidence_at: str = ""
    evidence_event: int = 0
    idle_seconds: float = NOT_IDLE
    last_used_at: str = ""


class Percept(PerceptRecord, frozen=True, omit_defaults=True, kw_only=True):
    """A percept as clients see it: ``w`` and ``idle_seconds`` are of now, and it has a place and a rank."""

    scope: Literal["global", "session"]
    session: str = ""
    rank_score: float
    extra: dict[str, str] = {}
    """Fields of its file that milkd does not know, each as JSON text."""


class Edge(Struct, frozen=True, omit_defaults=True, rename={"source": "from", "target": "to"}):
    """A typed edge (M2). ``propagated`` counts the sittings in which it acted (M13)."""

    source: str
    target: str
    relation: Relation
    propagated: int = 0
    propagated_at: str = ""
    propagated_event: int = 0
    made_event: int = 0


class Engram(Struct, frozen=True, omit_defaults=True):
    """A named group of percepts (M2); ``composite_w`` is the mean ``w`` of its members."""

    id: str
    subject_label: str
    composite_w: float
    percept_ids: list[str]
    created_at: str
    updated_at: str


class Archived(Struct, frozen=True, omit_defaults=True):
    """An archive entry (M4). ``scope`` is "global" or a session's name; ``successor`` only of superseded."""

    percept: PerceptRecord
    edges: list[Edge]
    reason: Reason
    at: str
    scope: str
    successor: str = ""
    extra: dict[str, str] = {}
    """Fields of the percept that milkd does not know, each as JSON text."""


class Near(Struct, frozen=True):
    """A percept that says almost the same, and why it is not the same (M14)."""

    percept: Percept
    reason: str


class Report(Struct, frozen=True, kw_only=True):
    """What one pass did (M18). Seconds are running seconds since the scope's last pass."""

    session: str
    decayed: int = 0
    pruned: int = 0
    promoted: int = 0
    promotion_deferred: int = 0
    global_decayed: int = 0
    archived: int = 0
    evicted: int = 0
    session_dt_s: float = 0.0
    global_dt_s: float = 0.0
    duration_ms: float = 0.0
    deferred_for: dict[str, int] = {}
    """Why promotions were deferred: ``evidence`` and ``contradiction``, with how many of each."""
    ids: dict[str, list[str]] = {}
    """The ids behind ``pruned``, ``promoted``, ``archived``, ``evicted``."""


# ---------------------------------------------------------------- requests

Number = Annotated[int, Meta(ge=0, le=(1 << 53))]
Name = Annotated[str, Meta(max_length=200)]


class Request(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="op", tag=str.lower):
    """What every request carries."""

    id: Number = 0
    ack: Number = 0
    by: Name = ""
    run: Name = ""
    """The run that this request belongs to; "" = none (a tool)."""
    session: Name = ""
    """The session a tool speaks of; a run has its own."""
    role: Role = ""
    """The role of a tool; a run has its own."""


class Hello(Request, kw_only=True):
    """A tool introduces itself; starts no run, moves no clock. ``run``: which, or "" for its ancestors'."""

    protocol: int
    version: str = ""


class Attach(Request, kw_only=True):
    """A run begins, or goes on after a reconnect. ``pid`` speaks for a process (hooks); 0 = the sender."""

    protocol: int
    version: str = ""
    pid: Number = 0


class Detach(Request, kw_only=True):
    """The run ends; its exit pass runs first."""


class Record(Request, kw_only=True):
    """State something (M11, M14). ``core`` makes it `learn`; ``same_as``, ``replaces``: ids or prefixes."""

    content: str
    producer: Producer | None = None
    consumer: Consumer = ""
    subject: str = ""
    roles: dict[str, str] = {}
    core: bool = False
    same_as: str = ""
    replaces: str = ""


class Get(Request, kw_only=True):
    """Recall (M21)."""

    query: str
    min_confidence: float | None = None
    max_results: int | None = None


class Inject(Request, kw_only=True):
    """The block to put before a prompt (M22). ``relevant`` keeps what shares a stem with it, and core."""

    prompt: str
    relevant: bool = False


class Link(Request, kw_only=True):
    """Make an edge (M2). ``supersede`` with ``updates``: the target leaves as superseded."""

    source: str
    target: str
    relation: Relation
    supersede: bool = False


class Unlink(Request, kw_only=True):
    """Remove edges between two percepts; ``relation`` None = all."""

    source: str
    target: str
    relation: Relation | None = None


class Forget(Request, kw_only=True):
    """Remove percepts and their content everywhere (M20)."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=1000)]


class Edit(Request, kw_only=True):
    """Replace a percept's content (M20)."""

    target: str
    content: str


class Pin(Request, kw_only=True):
    """Make a percept core (`learn` by id, M20)."""

    target: str


class Unpin(Request, kw_only=True):
    """Take core away (M20)."""

    target: str


class Restore(Request, kw_only=True):
    """Bring an archived percept back (M4)."""

    target: str


class List(Request, kw_only=True):
    """Living percepts, oldest first; no use. ``all_sessions`` is for tools; ``after`` is the page before's ``next``."""

    scope: Scope = ""
    all_sessions: bool = False
    producer: Producer | None = None
    min_w: float | None = None
    pattern: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class Show(Request, kw_only=True):
    """One percept, living or archived, with its edges and engram; not use."""

    target: str


class Explain(Request, kw_only=True):
    """Why a percept has the strength, rank and scope it has."""

    target: str


class Turn(Request, kw_only=True):
    """The turn signal: the run's pass (M15)."""


class Consolidate(Request, kw_only=True):
    """A pass by nobody's run unless ``run`` is set (M13, M15)."""


class Flush(Request, kw_only=True):
    """Answered when the JSON files hold everything answered so far."""


class Status(Request, kw_only=True):
    """How the daemon and the memory are."""


class ArchiveList(Request, kw_only=True):
    """Archive entries (M4), newest first. ``all_sessions``, ``after``: as in ``list``."""

    all_sessions: bool = False
    pattern: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class Conflicts(Request, kw_only=True):
    """Living contradictions."""


class Sessions(Request, kw_only=True):
    """The sessions there are."""


class RenameSession(Request, kw_only=True):
    """Give a session another name."""

    old: Name
    new: Name


class MergeSession(Request, kw_only=True):
    """Move everything of one session into another and remove the first."""

    source: Name
    into: Name


class Export(Request, kw_only=True):
    """A page of the store as it would stand in its file: a JSON document an item. For tools."""

    scope: Name = "global"
    part: Part = "percepts"
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class ShowConfig(Request, kw_only=True):
    """The config in force."""


class Shutdown(Request, kw_only=True):
    """Stop the daemon cleanly; answered before it stops."""


Ask = (
    Hello
    | Attach
    | Detach
    | Record
    | Get
    | Inject
    | Link
    | Unlink
    | Forget
    | Edit
    | Pin
    | Unpin
    | Restore
    | List
    | Show
    | Explain
    | Turn
    | Consolidate
    | Flush
    | Status
    | ArchiveList
    | Conflicts
    | Sessions
    | RenameSession
    | MergeSession
    | Export
    | ShowConfig
    | Shutdown
)
"""Any request."""

CHANGES = (
    Record,
    Link,
    Unlink,
    Forget,
    Edit,
    Pin,
    Unpin,
    Restore,
    Turn,
    Consolidate,
    Detach,
    RenameSession,
    MergeSession,
)
"""Requests that change memory: remembered by id, so that a retry acts once."""

# ---------------------------------------------------------------- replies


class Reply(Struct, kw_only=True, omit_defaults=True, tag_field="re", tag=str.lower):
    """What every reply carries: the ``id`` of its request."""

    id: int = 0


class Welcome(Reply, kw_only=True):
    """To ``hello`` and ``attach``. ``run`` is the run that requests may belong to ("" = none found)."""

    protocol: int
    version: str
    pid: int
    home: str
    boot: str
    """An id of this start of the daemon; another one means that it was restarted in between."""
    events: str
    """The endpoint of the event stream."""
    run: str = ""
    session: str = ""
    role: Role = ""
    max_content_bytes: int = 2000
    max_message_bytes: int = MAX_MESSAGE_BYTES


class Fault(Reply, kw_only=True):
    """The request failed and changed nothing."""

    code: str
    message: str
    hint: str = ""
    field: str = ""
    candidates: list[str] = []
    protocol: int = 0
    version: str = ""


class Recorded(Reply, kw_only=True):
    """To ``record``. ``near``: percepts that say almost the same, with the reason (M14)."""

    percept: Percept
    outcome: Outcome
    near: list[Near] = []
    superseded: str = ""
    """The id that ``replaces`` archived."""
    conflicts_with: str = ""
    """The global that the text now contradicts, where an agent may not change it by its word (M11)."""


class Percepts(Reply, kw_only=True):
    """To ``get`` and ``list``. ``next`` is not empty when there may be more (``list``), however short the page."""

    percepts: list[Percept]
    next: str = ""


class Injected(Reply, kw_only=True):
    """To ``inject``: the block, what stands in it, how many were dropped by the budget."""

    text: str
    percepts: list[Percept]
    dropped: int = 0


class Changed(Reply, kw_only=True):
    """To ``edit``, ``pin``, ``unpin``, ``restore``: the percept as it is now."""

    percept: Percept


class Linked(Reply, kw_only=True):
    """To ``link`` (the edge; ``created`` false when it was there) and ``unlink`` (``removed``: how many)."""

    edge: Edge | None = None
    created: bool = False
    removed: int = 0


class Forgotten(Reply, kw_only=True):
    """To ``forget``: the full ids that are gone, and the ids that they had superseded (M20)."""

    ids: list[str]
    superseded: list[str] = []


class Shown(Reply, kw_only=True):
    """To ``show``. ``archived`` is set when it does not live (``percept`` has its strength as of now)."""

    percept: Percept
    edges: list[Edge] = []
    engram: Engram | None = None
    archived: Archived | None = None


class Explained(Reply, kw_only=True):
    """To ``explain``: numbers, and sentences that go with them."""

    percept: Percept
    clock_s: float
    half_life_days: float
    w_confirmed: float
    decayed_by: float
    lived_s: float
    """Running seconds since the point at which ``w`` was last set."""
    r: float
    e: float
    age_days: float
    may_add_evidence: list[str]
    """Live runs whose sitting may still corroborate it (M12)."""
    may_not_add_evidence: list[str]
    promotion: str
    """``global``, ``at the next pass``, or what holds it back."""
    holds: list[str]
    """Each thing that keeps it from promotion, one sentence each."""
    leaves: str
    """How it will go if nothing happens: ``pruned``, ``stale``, ``never``, ``archived``."""
    leaves_in_running_s: float | None = None
    leaves_in_wall_s: float | None = None
    """At today's pace of running time; None when that pace is nought."""
    edges: list[Edge] = []
    archived_reason: str = ""


class Passed(Reply, kw_only=True):
    """To ``turn``, ``consolidate``, ``detach``: the report of M18. ``ran`` is false where no pass was due."""

    report: Report
    ran: bool = True


class Done(Reply, kw_only=True):
    """Done; nothing to tell."""


class RunLine(Struct, kw_only=True, omit_defaults=True):
    """A live run in ``status``."""

    run: str
    session: str
    role: str
    pid: int
    since: str
    silent_s: float
    stopped: bool = False
    sitting: int = 0
    command: str = ""


class SeenLine(Struct, kw_only=True, omit_defaults=True):
    """When a session and role were last heard, RFC 3339 ("" = never): shows the agent that stores nothing."""

    session: str
    role: str
    last_recorded: str = ""
    last_recalled: str = ""
    last_turn: str = ""


class SessionLine(Struct, kw_only=True, omit_defaults=True):
    """One session of ``sessions``; ``clock_s`` in running seconds (M6)."""

    session: str
    percepts: int
    archived: int
    clock_s: float
    live_runs: int


class Statused(Reply, kw_only=True, tag="status"):
    """To ``status``."""

    pid: int
    version: str
    protocol: int
    home: str
    started_at: str
    uptime_s: float
    health: list[str]
    """What is wrong, a sentence each; empty when all is well."""
    notes: list[str] = []
    """What is worth knowing and not wrong."""
    clocks: dict[str, Any]
    """``global_s`` and ``sessions`` (name -> seconds)."""
    runs: list[RunLine]
    seen: list[SeenLine]
    counts: dict[str, Any]
    """``global``, ``sessions`` (name -> percepts), ``archive``, ``edges``, ``core``, ``conflicts``,
    ``faults`` (code -> how many)."""
    last_pass: Report | None
    last_pass_at: str = ""
    totals: dict[str, float] = {}
    """`milk.memory.consolidation.*`, since the home was made."""
    journal: dict[str, Any] = {}
    files: dict[str, int] = {}
    """Each file that milkd keeps, with its bytes."""
    process: dict[str, float] = {}
    """``rss_bytes``, ``cpu_s``, ``loop_max_ms``, ``sync_max_ms`` of the daemon."""
    event: int = 0


class ArchivedList(Reply, kw_only=True):
    """To ``archivelist``."""

    entries: list[Archived]
    next: str = ""


class Conflict(Struct):
    """A living contradiction and its two ends."""

    source: Percept
    target: Percept
    edge: Edge


class ConflictList(Reply, kw_only=True):
    """To ``conflicts``."""

    conflicts: list[Conflict]


class SessionList(Reply, kw_only=True):
    """To ``sessions``."""

    sessions: list[SessionLine]


class Exported(Reply, kw_only=True):
    """To ``export``: JSON documents, exactly as they would stand in the file."""

    items: list[bytes]
    next: str = ""


class ConfigShown(Reply, kw_only=True):
    """To ``showconfig``: the values in force, their source, warnings, why a newer file is not in force."""

    values: dict[str, dict[str, Any]]
    source: str
    warnings: list[str] = []
    rejected: str = ""


Answer = (
    Welcome
    | Fault
    | Recorded
    | Percepts
    | Injected
    | Changed
    | Linked
    | Forgotten
    | Shown
    | Explained
    | Passed
    | Done
    | Statused
    | ArchivedList
    | ConflictList
    | SessionList
    | Exported
    | ConfigShown
)
"""Any reply."""

# ---------------------------------------------------------------- events


class Event(Struct, kw_only=True, omit_defaults=True):
    """Something that happened, as published (PUB, topic = ``kind``). Never sent before it is on disk."""

    kind: str
    """An `EventKind`, or one of a newer daemon."""
    at: str
    number: int
    session: str = ""
    run: str = ""
    percept: str = ""
    content: str = ""
    detail: str = ""


class _Head(Struct):
    """As much of a request as is needed to answer it, whatever else is wrong with it."""

    id: Any = 0
    protocol: Any = 0


_encoder = msgspec.msgpack.Encoder()
_ask = msgspec.msgpack.Decoder(Ask)
_answer = msgspec.msgpack.Decoder(Answer)
_event = msgspec.msgpack.Decoder(Event)
_head = msgspec.msgpack.Decoder(_Head)

encode = _encoder.encode
"""Any message -> bytes. Raises UnicodeEncodeError on lone surrogates."""
decode_request = _ask.decode
"""bytes -> a request. Raises msgspec.ValidationError (its text names the field) or msgspec.DecodeError."""
decode_reply = _answer.decode
decode_event = _event.decode


def request_head(data: bytes) -> tuple[int, int]:
    """The request number and protocol of a message that did not decode; 0 where it has none."""
    try:
        head = _head.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return 0, 0
    number = head.id if type(head.id) is int and head.id >= 0 else 0
    protocol = head.protocol if type(head.protocol) is int else 0
    return number, protocol
