"""Facts as text: what became of a statement, lists, one percept, the archive, contradictions. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence

import msgspec
from milk_client import Recording
from milk_client.wire import Archived, Conflict, Forgotten, Linked, Near, Percept, Shown

from milkctl.show import (
    Cell,
    Style,
    ago,
    count,
    edge_text,
    percept_rows,
    place,
    short,
    strength,
    table,
    visible,
    visible_lines,
    wrapped,
)

_REASONS = {
    "negation": "one negates what the other does not",
    "literal": "names, numbers, paths or code differ",
    "qualifier": "a word like only, until or if makes a difference",
    "opposed": "they hold opposite words",
    "order": "the same words in another order",
    "replaced": "a word was swapped for another",
    "adds": "it adds to what is settled",
    "omits": "it leaves out what the other says",
}
"""Why a near miss is none of a restatement (M14), for people; a reason not listed is told as it is."""

_LONGEST_IN_COMMAND = 120


def _in_command(content: str) -> str:
    """A content as it stands in a command to type; a placeholder where it is long or cannot be typed."""
    return shlex.quote(content) if content.isprintable() and len(content) <= _LONGEST_IN_COMMAND else "TEXT"


def saying(percept: Percept, style: Style, what: str, *looks: str) -> list[str]:
    """A percept with what happened to it: ``new  #1f3a9c21  0.90  global: …``."""
    head = f"{what} {short(percept.id)} in {place(percept)}, strength {strength(percept)}: "
    head = head.replace(" in global", ", global").replace("strength core", "core")
    first, *rest = wrapped(head + visible(percept.content), style, "", "  ")
    return [style.paint(what, *looks) + first.removeprefix(what), *rest]


def recording(done: Recording, content: str, options: Sequence[str], style: Style) -> str:
    """What became of a statement, near misses, and the commands that settle them."""
    what = {"new": "New", "reinforced": "Reinforced", "restored": "Restored"}[done.outcome]
    lines = saying(done.percept, style, what, "green")
    if done.outcome != "new" and done.percept.evidence:
        lines += [f"  Evidence: {done.percept.evidence}."]
    if done.superseded:
        lines += [
            f"  It takes the place of {short(done.superseded)}, which went to the archive "
            f"(`{style.command('restore', done.superseded[:8])}` brings it back)."
        ]
    if done.conflicts_with:
        lines += wrapped(
            f"It contradicts {short(done.conflicts_with)}, which is global and not an agent's to change: "
            f"`{style.command('conflicts')}` shows how to settle it.",
            style,
            "  ",
        )
    for near in done.near:
        lines += ["", *near_miss(done.id, near, content, options, style)]
    return "\n".join(lines)


def near_miss(new_id: str, near: Near, content: str, options: Sequence[str], style: Style) -> list[str]:
    """A percept that says almost the same, why it is not the same, and what settles it."""
    new, old = new_id[:8], near.percept.id[:8]
    reason = _REASONS.get(near.reason, "")
    why = f"{near.reason}: {reason}" if reason else near.reason
    said = f"{short(old)} says almost the same ({visible(why)}):"
    lines = [style.paint("Near miss", "yellow") + f"  {said}", *wrapped(visible(near.percept.content), style, "    ")]
    again = f"{style.command('record', *options)} {_in_command(content)} --same-as {old}"
    choices = [
        ("It is the same", f"{again} && {style.command('forget', new)}"),
        ("The new one replaces it", style.command("link", new, old, "updates", "--supersede")),
        ("They contradict", style.command("link", new, old, "contradicts")),
    ]
    width = max(len(label) for label, _ in choices) + 3
    # Commands are to be copied: never wrapped.
    lines += [f"  {label + ':':<{width}}{style.paint(command, 'bold')}" for label, command in choices]
    return [*lines, "  Both are right: nothing to do."]


def listing(percepts: Sequence[Percept], session: str, style: Style) -> str:
    """Percepts by scope, and how many there are."""
    if not percepts:
        return f"Nothing here: neither global nor in session {visible(session)} (`--all-sessions` looks in all)."
    groups: dict[str, list[Percept]] = {}
    for percept in percepts:
        groups.setdefault(place(percept), []).append(percept)
    lines: list[str] = []
    for name, members in groups.items():
        title = name[0].upper() + name[1:]
        lines += [style.paint(f"{title} ({len(members)})", "bold"), *table(percept_rows(members, style), style), ""]
    return "\n".join(lines[:-1])


def recalled(percepts: Sequence[Percept], style: Style) -> str:
    """What a query found, best first."""
    if not percepts:
        return "Nothing that is remembered matches."
    return "\n".join(table(percept_rows(percepts, style, with_place=True), style, indent=""))


def shown(found: Shown, style: Style) -> str:
    """One percept with all that is known of it."""
    percept = found.percept
    confirmed = percept.w if percept.w_confirmed is None else percept.w_confirmed
    rows: list[tuple[str, str]] = [
        ("strength", "core: it does not fade" if percept.core else f"{percept.w:.2f}, {confirmed:.2f} as confirmed"),
        ("said by", percept.producer),
        ("seen by", percept.consumer or "all"),
        ("place", place(percept)),
    ]
    if found.engram is not None:
        engram = found.engram
        told = f"{visible(engram.subject_label)} ({count(len(engram.percept_ids), 'percept')})"
        rows.append(("subject", told))
    rows += [(name, visible(value)) for name, value in percept.roles.items()]
    if percept.evidence:
        rows.append(("evidence", f"{percept.evidence}, the last {ago(percept.evidence_at, style.now)}"))
    rows += [
        ("recorded", ago(percept.created_at, style.now)),
        ("changed", ago(percept.updated_at, style.now)),
        ("last used", ago(percept.last_used_at, style.now)),
    ]
    rows += [("edge", edge_text(edge, percept.id)) for edge in found.edges]
    if found.archived is not None:
        gone = found.archived
        rows.append(("archived", f"{_reason(gone)} {ago(gone.at, style.now)}"))
        rows += [("edge then", edge_text(edge, percept.id)) for edge in gone.edges]
    rows += [(visible(key), visible(_one_line(text))) for key, text in percept.extra.items()]
    lines = [style.paint(f"#{visible(percept.id)}", "cyan"), ""]
    for line in visible_lines(percept.content).split("\n"):
        lines += wrapped(line, style, "  ")
    lines += ["", *table([((name, "dim"), value) for name, value in rows], style)]
    if found.archived is not None:
        lines += ["", f"`{style.command('restore', percept.id[:8])}` brings it back."]
    return "\n".join(lines)


def _one_line(json: str) -> str:
    """JSON text without its line breaks; as it is where it is none."""
    try:
        line: str = msgspec.json.format(json, indent=-1)
    except msgspec.DecodeError:
        return json
    return line


def _reason(gone: Archived) -> str:
    by = f" by {short(gone.successor)}" if gone.successor else ""
    return f"{gone.reason}{by}"


def archive(entries: Sequence[Archived], style: Style) -> str:
    """What the model let go, newest first."""
    if not entries:
        return "The archive is empty: the model has let nothing go."
    rows: list[list[Cell]] = [
        [
            (short(entry.percept.id), "cyan"),
            _reason(entry),
            (ago(entry.at, style.now), "dim"),
            "global" if entry.scope == "global" else f"session {visible(entry.scope)}",
            visible(entry.percept.content),
        ]
        for entry in entries
    ]
    return "\n".join([*table(rows, style, indent=""), "", f"`{style.command('restore', 'ID')}` brings one back."])


def conflicts(found: Sequence[Conflict], style: Style) -> str:
    """What contradicts what, with the commands that settle it."""
    if not found:
        return "No contradictions."
    lines = wrapped(
        f"{count(len(found), 'contradiction')}. Until one is settled, neither side of it becomes global.", style
    )
    for conflict in found:
        first, second = conflict.source, conflict.target
        a, b = first.id[:8], second.id[:8]
        sides = table(percept_rows([first, second], style, with_place=True), style)
        choices = [
            (f"#{a} is right", style.command("link", a, b, "updates", "--supersede")),
            (f"#{b} is right", style.command("link", b, a, "updates", "--supersede")),
            ("Both are right", style.command("unlink", a, b, "contradicts")),
        ]
        lines += ["", *sides, *(f"    {label + ':':<22}{style.paint(told, 'bold')}" for label, told in choices)]
    lines += ["", *wrapped("What is superseded goes to the archive; `forget ID` removes it for good.", style)]
    return "\n".join(lines)


def changed(what: str) -> Callable[[Percept, Style], str]:
    """How a changed percept is told: ``Edited #…``."""

    def told(percept: Percept, style: Style) -> str:
        return "\n".join(saying(percept, style, what, "green"))

    return told


def linked(done: Linked, superseded: str, style: Style) -> str:
    """An edge that was made, or was there."""
    if done.edge is None:
        return "No edge."
    edge = f"{short(done.edge.source)} {done.edge.relation} {short(done.edge.target)}"
    lines = [f"Linked: {edge}." if done.created else f"That edge was there already: {edge}."]
    if superseded:
        back = style.command("restore", superseded[:8])
        lines.append(f"  {short(superseded)} is superseded and went to the archive (`{back}` brings it back).")
    return "\n".join(lines)


def forgotten(done: Iterable[Forgotten], style: Style) -> str:
    """What is gone for good, and what it had superseded."""
    lines = []
    for one in done:
        lines += [f"Forgotten: {short(percept_id)}; no file holds its content any more." for percept_id in one.ids]
        for other in one.superseded:
            lines += wrapped(
                f"It had superseded {short(other)}, which is in the archive still: "
                f"`{style.command('forget', other[:8])}` if that is to go too.",
                style,
                "  ",
            )
    return "\n".join(lines)
