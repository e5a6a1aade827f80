"""The whole store for reading, as Markdown. Pure; takes what others wrote into the files as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from milkctl.show import short, visible

_MARKUP = re.compile(r"([\\`*_\[\]<>#|~])")


def markdown(store: dict[str, Any]) -> str:
    """Global, each session, the archive: a heading each, a line a percept."""
    parts = ["# What milkd remembers", *_scope("Global", store["global"])]
    for name, scope in store["sessions"].items():
        parts += _scope(f"Session {_plain(name)}", scope)
    gone = [
        _item(entry["percept"], f"{entry['reason']} {str(entry['at'])[:10]}, {_plain(entry['scope'])}")
        for entry in store["archive"]
    ]
    if gone:
        parts += ["", f"## Archive ({len(gone)})", "", *gone]
    return "\n".join(parts)


def _scope(title: str, scope: dict[str, list[dict[str, Any]]]) -> list[str]:
    percepts = scope["percepts"]
    contents = {percept["id"]: str(percept["content"]) for percept in percepts}
    subjects = {engram["id"]: str(engram["subject_label"]) for engram in scope["engrams"]}
    lines = ["", f"## {title} ({len(percepts)})", ""]
    grouped = sorted(percepts, key=lambda p: (subjects.get(p.get("engram_id", ""), ""), -_number(p.get("w"))))
    heading = ""
    for percept in grouped:
        subject = subjects.get(percept.get("engram_id", ""), "")
        if subject != heading:
            heading = subject
            lines += ["", f"### {_plain(subject)}", ""]
        lines.append(_item(percept, ""))
    if scope["edges"]:
        lines += ["", "### Edges", "", *_edges(scope["edges"], contents)]
    return lines if percepts or scope["edges"] else [*lines[:2], "", "Nothing."]


def _item(percept: dict[str, Any], more: str) -> str:
    weight = "core" if percept.get("core") else f"{_number(percept.get('w')):.2f}"
    about = ", ".join(
        part for part in (weight, _plain(percept.get("producer", "primary")), short(percept["id"]), more) if part
    )
    return f"- {_plain(percept['content'])} ({about})"


def _edges(edges: Iterable[dict[str, Any]], contents: dict[str, str]) -> Iterable[str]:
    for edge in edges:
        ends = [_plain(contents.get(edge[end], short(edge[end]))) for end in ("from", "to")]
        yield f"- “{ends[0]}” {_plain(edge['relation'])} “{ends[1]}”"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _plain(text: Any) -> str:
    """One line in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", visible(" ".join(str(text).split())))
