"""Why a percept is as it is and what will become of it, in sentences (M8, M9, M12, M17). Pure."""

from __future__ import annotations

from milk_client.wire import Explained

from milkctl.show import Style, ago, count, edge_text, place, short, span, visible, wrapped

_DAY_S = 86400.0


def explained(found: Explained, style: Style) -> str:
    """The whole of `milkctl explain`, a paragraph a question."""
    percept = found.percept
    lines = [f"{style.paint(short(percept.id), 'cyan')}  {visible(percept.content)}"]
    if style.width:
        lines = wrapped(visible(percept.content), style, f"{short(percept.id)}  ")
        lines[0] = lines[0].replace(short(percept.id), style.paint(short(percept.id), "cyan"), 1)
    paragraphs = {
        "Origin": _origin(found, style),
        "Strength": _strength(found),
        "Evidence": _evidence(found, style),
        "Rank": _rank(found),
        "Promotion": _promotion(found),
        "Future": _future(found, style),
        "Edges": [f"{edge_text(edge, percept.id)}." for edge in found.edges],
    }
    width = max(map(len, paragraphs)) + 2
    for title, sentences in paragraphs.items():
        if sentences:
            first, *rest = wrapped(" ".join(sentences), style, " " * width)
            lines += [f"{style.paint(title, 'bold')}{' ' * (width - len(title))}{first.strip()}", *rest]
    return "\n".join(lines)


def _origin(found: Explained, style: Style) -> list[str]:
    percept = found.percept
    if found.archived_reason:
        where = f"It is in the archive ({found.archived_reason}), once of {place(percept)}."
    else:
        where = f"It is {'global' if percept.scope == 'global' else 'in ' + place(percept)}."
    who = "the user" if percept.producer == "user" else percept.producer
    told = f"Said by {who}, recorded {ago(percept.created_at, style.now)}"
    if percept.updated_at != percept.created_at:
        told += f", last stated or changed {ago(percept.updated_at, style.now)}"
    told += f", last used {ago(percept.last_used_at, style.now)}." if percept.last_used_at else ", never used since."
    return [told, where, *([f"Only the {percept.consumer} role sees it."] if percept.consumer else [])]


def _strength(found: Explained) -> list[str]:
    percept = found.percept
    if percept.core:
        return ["Core: always at full strength, it does not fade."]
    half_life = span(found.half_life_days * _DAY_S)
    lived = f"{span(found.lived_s)} of running time"
    told = [f"{percept.w:.2f} now, {found.w_confirmed:.2f} as last confirmed."]
    if found.lived_s < 1:
        told.append("Hardly any running time has passed since it was last set.")
    elif found.decayed_by >= 0.005:
        told.append(f"It lost {found.decayed_by:.2f} in the {lived} since it was last set.")
    else:
        told.append(f"It lost next to nothing in the {lived} since it was last set.")
    what = "What it has above the floor halves" if percept.scope == "global" else "It halves"
    return [*told, f"{what} in {half_life} of running time."]


def _evidence(found: Explained, style: Style) -> list[str]:
    percept = found.percept
    told = "None so far: nobody has said it again in a run."
    if percept.evidence:
        told = f"{count(percept.evidence, 'corroboration')}, the last {ago(percept.evidence_at, style.now)}."
    if not percept.evidence_at and percept.evidence:
        told = f"{count(percept.evidence, 'corroboration')}, without a date."
    if percept.core:
        return [told] if percept.evidence else []
    may, may_not = _names(found.may_add_evidence), _names(found.may_not_add_evidence)
    if not may and not may_not:
        return [told, "No live run could add to it now; one that begins later may."]
    sentences = [told]
    if may:
        sentences.append(f"May still add to it by saying the same: {may}.")
    if may_not:
        sentences.append(f"Began before it was last corroborated, so may not: {may_not}.")
    return sentences


def _names(runs: list[str]) -> str:
    return "; ".join(f"run {visible(run)}" for run in runs)


def _rank(found: Explained) -> list[str]:
    percept = found.percept
    return [
        f"{percept.rank_score:.3f} = {percept.w:.3f} strength × {1 + found.r:.3f} for being stated "
        f"{_age(found.age_days)} × {1 + found.e:.2f} for evidence."
    ]


def _age(days: float) -> str:
    return "just now" if days * _DAY_S < 60 else f"{span(days * _DAY_S)} ago"


def _promotion(found: Explained) -> list[str]:
    match found.promotion:
        case "archived":
            return []
        case "global":
            return ["It is global already: every session sees it."]
        case "at the next pass":
            return ["It becomes global at the next pass."]
    holds = [visible(hold) for hold in found.holds]
    if len(holds) == 1:
        return [f"Not global yet: {holds[0]}."]
    return ["Not global yet.", *(f"({n}) {hold[:1].upper()}{hold[1:]}." for n, hold in enumerate(holds, 1))]


def _future(found: Explained, style: Style) -> list[str]:
    back = f"`{style.command('restore', found.percept.id[:8])}` brings it back"
    match found.leaves:
        case "archived":
            return [f"It stays in the archive; {back}, and so does saying it again unless it was superseded."]
        case "never":
            if found.percept.core:
                return ["It stays until it is unpinned or forgotten."]
            return ["It does not leave by itself: it is strong enough to become global and waits for that."]
        case "stale":
            what = "Unused, it goes to the archive"
        case "pruned":
            what = "If nobody states it again, it has faded to the limit and goes to the archive"
        case other:
            what = f"If nothing happens, it leaves ({visible(other)})"
    if found.leaves_in_running_s is None:
        return [f"{what}."]
    told = f"{what} after {span(found.leaves_in_running_s)} more of running time (agents attached)"
    if found.leaves_in_wall_s is None:
        return [f"{told}; there is no pace yet to tell the date by."]
    return [f"{told}: at today's pace in {span(found.leaves_in_wall_s)}."]
