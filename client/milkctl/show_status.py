"""How the daemon and the memory are, as text: health first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from milk_client.wire import ConfigShown, Report, RunLine, SeenLine, SessionLine, Statused

from milkctl.show import Cell, Style, ago, count, short, size, span, table, visible, wrapped

_FEW_SESSIONS = 12


def status(found: Statused, style: Style) -> str:
    """The whole of `milkctl status`."""
    parts = [
        _health(found, style),
        _daemon(found, style),
        _section("Live runs", _runs(found.runs, style), style, "No agent is attached: no clock moves."),
        _section("Sessions and roles", _seen(found.seen, style), style, "Nobody has recorded or recalled yet."),
        _section("Memory", _memory(found, style), style),
        _section("Last pass", _last_pass(found, style), style, "None yet."),
        _section("Files", _files(found, style), style),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _section(title: str, lines: list[str], style: Style, empty: str = "") -> list[str]:
    if not lines and not empty:
        return []
    return [style.paint(title, "bold"), *(lines or [f"  {empty}"])]


def _health(found: Statused, style: Style) -> list[str]:
    lines = [style.paint("Health: good", "green", "bold")]
    if found.health:
        lines = [style.paint(f"Health: {count(len(found.health), 'problem')}", "red", "bold")]
        for problem in found.health:
            lines += wrapped(visible(problem), style, "  ! ")
    for note in found.notes:
        lines += wrapped(visible(note), style, "  note: ")
    return lines


def _daemon(found: Statused, style: Style) -> list[str]:
    rows: list[tuple[str, str]] = [
        ("milkd", f"{visible(found.version)}, pid {found.pid}, up {span(found.uptime_s)}"),
        ("home", visible(found.home)),
    ]
    if "rss_bytes" in found.process:
        used = f"{size(found.process['rss_bytes'])} of memory, {found.process.get('cpu_s', 0.0):.1f} s of CPU"
        rows.append(("process", used))
    return table([((name, "dim"), value) for name, value in rows], style, indent="")


def _runs(runs: Sequence[RunLine], style: Style) -> list[str]:
    rows: list[list[Cell]] = []
    for run in runs:
        state = "stopped" if run.stopped else f"heard {_silence(run.silent_s)}"
        what = ", ".join([state, *([visible(run.command)] if run.command else [])])
        since = (ago(run.since, style.now), "dim")
        rows.append([(visible(run.run[:8]), "cyan"), str(run.pid), visible(run.session), run.role, since, what])
    return table(rows, style, head=("run", "pid", "session", "role", "since", "state, command")) if rows else []


def _silence(seconds: float) -> str:
    return "just now" if seconds < 5 else f"{span(seconds)} ago"


def _seen(seen: Sequence[SeenLine], style: Style) -> list[str]:
    rows: list[list[Cell]] = []
    for line in seen:
        recorded: Cell = ago(line.last_recorded, style.now)
        if not line.last_recorded:
            recorded = ("never", "yellow")
        recalled, turn = ago(line.last_recalled, style.now), ago(line.last_turn, style.now)
        rows.append([visible(line.session), line.role or "user", recorded, recalled, turn])
    return table(rows, style, head=("session", "role", "recorded", "recalled", "turn")) if rows else []


def _memory(found: Statused, style: Style) -> list[str]:
    counts, clocks = found.counts, found.clocks
    sessions: dict[str, int] = counts.get("sessions", {})
    running: dict[str, float] = clocks.get("sessions", {})
    core = counts.get("core", 0)
    rows: list[list[Cell]] = [["global", _percepts(counts.get("global", 0), core), span(clocks.get("global_s", 0.0))]]
    names = sorted(sessions, key=lambda name: (-running.get(name, 0.0), name))
    for name in names[:_FEW_SESSIONS]:
        rows.append([visible(name), _percepts(sessions[name]), span(running.get(name, 0.0))])
    lines = table(rows, style, head=("scope", "percepts", "running time"))
    if len(names) > _FEW_SESSIONS:
        lines.append(f"  and {count(len(names) - _FEW_SESSIONS, 'session')} more: `{style.command('sessions')}`")
    conflicts = counts.get("conflicts", 0)
    unsettled = count(conflicts, "unresolved contradiction")
    rest = [f"{counts.get('archive', 0)} archived", count(counts.get("edges", 0), "edge")]
    told = style.paint(unsettled, "yellow") if conflicts else unsettled
    return [*lines, f"  {', '.join(rest)}, {told}"]


def _percepts(number: int, core: int = 0) -> str:
    return f"{number} ({core} core)" if core else str(number)


def _last_pass(found: Statused, style: Style) -> list[str]:
    if found.last_pass is None:
        return []
    when = f", {ago(found.last_pass_at, style.now)}" if found.last_pass_at else ""
    report = found.last_pass
    return wrapped(f"Session {visible(report.session)}{when}: {did(report)}.", style, "  ")


def _files(found: Statused, style: Style) -> list[str]:
    rows: list[tuple[str, str]] = []
    if "bytes" in found.journal:
        room = found.files.get("journal", 0)
        rows.append(("journal", size(found.journal["bytes"]) + (f", room for {size(room)}" if room else "")))
    others = {name: held for name, held in found.files.items() if held and name != "journal"}
    rows += [(visible(name), size(held)) for name, held in sorted(others.items(), key=lambda item: -item[1])[:8]]
    if len(others) > 8:
        rows.append((f"{len(others) - 8} more", size(sum(sorted(others.values())[:-8]))))
    return table(rows, style)


# ---------------------------------------------------------------- passes


def did(report: Report) -> str:
    """What a pass did, in words; only what happened."""
    waiting = ", ".join(f"{n} by {_held_back(what)}" for what, n in report.deferred_for.items())
    parts = [
        (report.promoted, "promoted to global"),
        (report.promotion_deferred, f"held back ({waiting})" if waiting else "held back"),
        (report.pruned, "faded away (pruned)"),
        (report.archived, "archived unused"),
        (report.evicted, "evicted for room"),
        (report.decayed + report.global_decayed, "weaker by time"),
    ]
    return ", ".join(f"{number} {what}" for number, what in parts if number) or "nothing to do"


def _held_back(what: str) -> str:
    return {"evidence": "lack of evidence", "contradiction": "a contradiction"}.get(what, visible(what))


def passed(report: Report, style: Style) -> str:
    """The report of a pass (M18)."""
    lines = wrapped(f"Pass over session {visible(report.session)} and the globals: {did(report)}.", style)
    for what, ids in report.ids.items():
        if ids:
            lines.append(f"  {visible(what)}: {' '.join(short(i) for i in ids)}")
    lines.append(
        f"  Running time since the last pass: session {span(report.session_dt_s)}, global {span(report.global_dt_s)}."
    )
    return "\n".join(lines)


# ---------------------------------------------------------------- sessions, config


def sessions(lines: Sequence[SessionLine], current: str, style: Style) -> str:
    """The sessions there are, that of this place marked."""
    if not lines:
        return "No sessions yet: one begins when something is recorded in it or an agent attaches."
    rows: list[list[Cell]] = [
        [
            ("*" if line.session == current else "", "green"),
            visible(line.session),
            str(line.percepts),
            str(line.archived),
            span(line.clock_s),
            str(line.live_runs),
        ]
        for line in lines
    ]
    head = ("", "session", "percepts", "archived", "running time", "live runs")
    marked = ["", "* the session of this place"] if any(line.session == current for line in lines) else []
    return "\n".join([*table(rows, style, head=head, indent=""), *marked])


def config(found: ConfigShown, style: Style) -> str:
    """The config in force, as a file that says the same."""
    lines = []
    if found.rejected:
        lines += [style.paint(f"# Not in force, the older values still are: {visible(found.rejected)}", "red")]
    source = visible(found.source)
    lines += [style.paint(f"# In force, from {source}" if source != "defaults" else "# In force: the defaults", "dim")]
    lines += [style.paint(f"# warning: {visible(warning)}", "yellow") for warning in found.warnings]
    for name, values in found.values.items():
        lines += ["", style.paint(f"[{visible(name)}]", "bold"), *_assignments(values)]
    return "\n".join(lines)


def _assignments(values: dict[str, Any]) -> Iterable[str]:
    width = max(map(len, values), default=0)
    for key, value in values.items():
        spelt = f'"{visible(value)}"' if isinstance(value, str) else str(value).lower()
        yield f"{visible(key):<{width}} = {spelt}"
