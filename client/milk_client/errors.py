"""Every error a user may meet: a class is its wire code, its exit status and one sentence.

A fault crosses the wire as ``code`` + ``message`` + ``hint`` + ``field`` and becomes the same class on
the other side; ``milkctl`` prints ``message``, then ``hint`` (what to do), and exits with ``exit_status``.
"""

from __future__ import annotations

from typing import ClassVar


class MilkError(Exception):
    """The base of all errors of milkd; raised itself only for a fault inside the daemon.

    ``message`` says what happened, ``hint`` what to do, ``field`` which argument is to blame (or ""),
    ``candidates`` the ids that an ambiguous prefix could mean.
    """

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1
    default_hint: ClassVar[str] = "See the daemon's log; if it stays, report it with `milkctl status --json`."

    def __init__(self, message: str, *, hint: str = "", field: str = "", candidates: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.field = field
        self.candidates = candidates


class NoDaemon(MilkError):
    """No daemon answers on this home, and none was or could be started."""

    code = "no_daemon"
    exit_status = 4
    default_hint = "Start it with `milkctl start` (or run `milkd` in a terminal)."


class Timeout(MilkError):
    """The daemon did not answer in time; a change may have been done."""

    code = "timeout"
    default_hint = "Give it longer with --timeout, or look at `milkctl status`."


class NotFound(MilkError):
    """No percept, run, session or archive entry of that id."""

    code = "not_found"
    exit_status = 5
    default_hint = "`milkctl list` shows what is there, `milkctl archive list` what was let go."


class Ambiguous(MilkError):
    """An id prefix that several percepts share; ``candidates`` lists them."""

    code = "ambiguous"
    exit_status = 6
    default_hint = "Give more digits of the id."


class Invalid(MilkError):
    """An argument of the wrong shape or range; ``field`` names it. Nothing was changed."""

    code = "invalid"
    exit_status = 2
    default_hint = "Correct the value and try again; nothing was changed."


class Refused(MilkError):
    """A change that the memory model does not allow this caller (M11, M20). Nothing was changed."""

    code = "refused"
    default_hint = "A person can do it with milkctl, outside any agent."


class TooLarge(MilkError):
    """A content or message above its limit (`max_content_bytes`, `max_message_bytes`)."""

    code = "too_large"
    default_hint = "Say it in fewer words; one percept is one assertion."


class StorageFull(MilkError):
    """The change could not be written to disk, so it was taken back."""

    code = "storage_full"
    default_hint = "Free space on the disk that holds the home, then try again; nothing is lost."


class VersionMismatch(MilkError):
    """Client and daemon speak different protocols."""

    code = "version_mismatch"
    default_hint = "Upgrade the older of the two, then `milkctl restart`."


class UnknownRun(MilkError):
    """The daemon does not know this run (any more); the client attaches again by itself."""

    code = "unknown_run"
    default_hint = "Begin a run first (`milkctl run begin`)."


class Overloaded(MilkError):
    """Too many requests of this client are waiting."""

    code = "overloaded"
    default_hint = "Wait for answers before sending more."


BY_CODE: dict[str, type[MilkError]] = {
    kind.code: kind
    for kind in (
        MilkError,
        NoDaemon,
        Timeout,
        NotFound,
        Ambiguous,
        Invalid,
        Refused,
        TooLarge,
        StorageFull,
        VersionMismatch,
        UnknownRun,
        Overloaded,
    )
}
