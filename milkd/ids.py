"""Ids by their first digits (M20)."""

from __future__ import annotations

from collections.abc import Container

from milk_client.errors import Ambiguous, Invalid, NotFound

SHORTEST = 4
"""Hexadecimal digits that a prefix has at least (M20)."""


class Prefixes:
    """The ids there are, by their first digits."""

    def __init__(self) -> None:
        self._ids: dict[str, set[str]] = {}

    def add(self, percept_id: str) -> None:
        """An id is there."""
        self._ids.setdefault(percept_id[:SHORTEST], set()).add(percept_id)

    def discard(self, percept_id: str) -> None:
        """An id is there no longer."""
        ids = self._ids.get(percept_id[:SHORTEST])
        if ids is not None:
            ids.discard(percept_id)
            if not ids:
                del self._ids[percept_id[:SHORTEST]]

    def resolve(self, given: str, field: str, *known: Container[str]) -> str:
        """The full id of an id or a prefix of at least 4 hex digits, with or without `#` (M20).

        Raises Invalid, NotFound or Ambiguous (with the candidates).
        """
        text = given.strip().removeprefix("#").lower()
        if any(text in ids for ids in known):
            return text
        digits = text.replace("-", "")
        if len(digits) < SHORTEST or len(text) > 36 or any(c not in "0123456789abcdef" for c in digits):
            raise Invalid(
                f"{field}: {given[:60]!r} is not an id; give at least {SHORTEST} hexadecimal digits of it", field=field
            )
        found = sorted(i for i in self._ids.get(text[:SHORTEST], ()) if i.startswith(text))
        if not found:
            raise NotFound(f"{field}: no percept has the id {text}", field=field)
        if len(found) > 1:
            shown = ", ".join(i[:13] for i in found[:8])
            raise Ambiguous(
                f"{field}: {text} could be any of {len(found)} percepts: {shown}",
                field=field,
                candidates=tuple(found[:50]),
            )
        return found[0]
