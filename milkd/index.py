"""Finding percepts by their words: postings by stem, texts by their normal form. Derived, never stored.

One index covers one scope's living percepts, another one its archive. Work grows with the postings of the
rarer words, not with what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from milkd.rules.text import normal, rare_prefix_size, stems

_NONE: frozenset[str] = frozenset()


class Index:
    """Ids by stem and by normal text, over one set of percepts."""

    def __init__(self) -> None:
        self._stems: dict[str, frozenset[str]] = {}
        self._postings: dict[str, dict[str, None]] = {}
        self._texts: dict[int, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._stems)

    def __contains__(self, percept_id: str) -> bool:
        return percept_id in self._stems

    def __iter__(self) -> Iterator[str]:
        return iter(self._stems)

    def add(self, percept_id: str, content: str) -> None:
        """Index a content under an id that is not there yet."""
        words = stems(content)
        self._stems[percept_id] = words
        for word in words:
            posting = self._postings.get(word)
            if posting is None:
                self._postings[word] = {percept_id: None}
            else:
                posting[percept_id] = None
        self._texts.setdefault(hash(normal(content)), {})[percept_id] = None

    def remove(self, percept_id: str, content: str) -> None:
        """Take an id out; ``content`` is what it was added with."""
        for word in self._stems.pop(percept_id):
            posting = self._postings[word]
            del posting[percept_id]
            if not posting:
                del self._postings[word]
        key = hash(normal(content))
        texts = self._texts[key]
        del texts[percept_id]
        if not texts:
            del self._texts[key]

    def similar(self, content: str, words: frozenset[str], threshold: float) -> Iterable[str]:
        """Ids that may be a restatement of ``content``: all whose stems overlap by ``threshold`` (Jaccard),
        and all of the same normal text. No false negatives; the caller compares (M14).
        """
        found: dict[str, None] = dict(self._texts.get(hash(normal(content)), {}))
        size = len(words)
        if not size:
            return found
        postings = self._postings
        by_rarity = sorted(words, key=lambda word: len(postings.get(word, _NONE)))
        low, high = size * threshold - 1e-9, size / threshold + 1e-9 if threshold > 0 else float("inf")
        for word in by_rarity[: rare_prefix_size(size, threshold)]:
            for percept_id in postings.get(word, _NONE):
                if percept_id not in found:
                    other = self._stems[percept_id]
                    if low <= len(other) <= high:
                        shared = len(words & other)
                        if shared >= threshold * (size + len(other) - shared) - 1e-9:
                            found[percept_id] = None
        return found

    def tiers(self, words: frozenset[str]) -> Iterator[tuple[int, list[str]]]:
        """Ids by how many of ``words`` they share, most first: (hits, ids) down to 1 (M21).

        A percept with h hits of m words shares one of any m - h + 1 of them, so the higher tiers come from
        the rarer words alone and the caller may stop before the common ones are looked at.
        """
        lists = sorted((p for word in words if (p := self._postings.get(word))), key=len)
        m = len(lists)
        waiting: dict[int, list[str]] = {hits: [] for hits in range(1, m + 1)}
        seen: set[str] = set()
        for hits in range(m, 0, -1):
            fresh = [i for i in lists[m - hits] if i not in seen]
            seen.update(fresh)
            if hits == 1 and m == 1:
                waiting[1] = fresh
            else:
                for percept_id in fresh:
                    waiting[len(self._stems[percept_id] & words)].append(percept_id)
            yield hits, waiting[hits]

    def hits(self, percept_id: str, words: frozenset[str]) -> int:
        """How many of ``words`` a percept shares."""
        return len(self._stems[percept_id] & words)
