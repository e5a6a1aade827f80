"""Finding percepts by their words: postings by stem, texts by their normal form. Derived, never stored.

One index covers one scope's living percepts, another one its archive. A percept has a slot, a small number
that stands for it in postings and in the columns of `milkd.ranking`; slots of what left are taken again.
Postings are flat arrays of slots that numpy reads in place: a word that thousands share costs microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from milkd.rules.text import normal, rare_prefix_size, stems

Slots = NDArray[np.int64]
"""Slot numbers, each once."""
Counts = NDArray[np.uint16]

_ROOM = 1024
NO_SLOTS: Slots = np.empty(0, np.int64)


class Index:
    """Ids by stem and by normal text, over one set of percepts."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._ids: list[str] = []
        self._free: list[int] = []
        self._postings: dict[str, array[int]] = {}
        self._texts: dict[int, tuple[int, ...]] = {}
        self._sizes: Counts = np.zeros(_ROOM, np.uint16)
        self._tally: Counts = np.zeros(_ROOM, np.uint16)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, percept_id: str) -> bool:
        return percept_id in self._slots

    def __iter__(self) -> Iterator[str]:
        return iter(self._slots)

    def slot(self, percept_id: str) -> int:
        """The slot of an id that is there."""
        return self._slots[percept_id]

    def ids(self, slots: Slots) -> list[str]:
        """The ids in some slots."""
        return [self._ids[slot] for slot in slots.tolist()]

    def add(self, percept_id: str, content: str) -> int:
        """Index a content under an id that is not there yet; returns its slot."""
        if self._free:
            slot = self._free.pop()
            self._ids[slot] = percept_id
        else:
            slot = len(self._ids)
            self._ids.append(percept_id)
            if slot >= len(self._sizes):
                self._sizes = np.concatenate([self._sizes, np.zeros_like(self._sizes)])
                self._tally = np.zeros_like(self._sizes)
        self._slots[percept_id] = slot
        words = stems(content)
        self._sizes[slot] = len(words)
        for word in words:
            posting = self._postings.get(word)
            if posting is None:
                self._postings[word] = array("q", (slot,))
            else:
                posting.append(slot)
        key = hash(normal(content))
        self._texts[key] = (*self._texts.get(key, ()), slot)
        return slot

    def remove(self, percept_id: str, content: str) -> int:
        """Take an id out and return its slot; ``content`` is what it was added with."""
        slot = self._slots.pop(percept_id)
        self._ids[slot] = ""
        for word in stems(content):
            posting = self._postings[word]
            place = int(np.flatnonzero(_read(posting) == slot)[0])
            last = posting.pop()
            if place < len(posting):
                posting[place] = last
            elif not posting:
                del self._postings[word]
        key = hash(normal(content))
        texts = tuple(other for other in self._texts[key] if other != slot)
        if texts:
            self._texts[key] = texts
        else:
            del self._texts[key]
        self._free.append(slot)
        return slot

    def similar(self, content: str, words: frozenset[str], threshold: float) -> list[str]:
        """Ids that may be a restatement of ``content``: all whose stems overlap by ``threshold`` (Jaccard),
        and all of the same normal text. No false negatives; the caller compares (M14).
        """
        same = self._texts.get(hash(normal(content)), ())
        found = [self._ids[slot] for slot in same]
        size = len(words)
        lists = self._lists(words)
        # Words that no percept has are the rarest: they use up the part of the prefix that they fill.
        rare = rare_prefix_size(size, threshold) - (size - len(lists)) if size else 0
        if rare > 0 and lists:
            slots, shared = self._counted(lists[:rare], lists[rare:])
            others = self._sizes[slots].astype(np.float64)
            alike = shared >= threshold * (size + others - shared) - 1e-9
            found += [self._ids[slot] for slot in slots[alike].tolist() if slot not in same]
        return found

    def hits(self, words: Collection[str]) -> tuple[Slots, Counts]:
        """The slots that share at least one of ``words``, and how many each shares (M21)."""
        lists = self._lists(words)
        if not lists:
            return NO_SLOTS, np.empty(0, np.uint16)
        longest = lists.pop()
        if not lists:
            return longest.copy(), np.ones(len(longest), np.uint16)
        self._tally_up(lists)
        shared = self._tally.take(longest) > 0
        self._tally[longest[shared]] += 1
        slots, counts = self._collect(lists)
        alone = longest[~shared]
        return np.concatenate([slots, alone]), np.concatenate([counts, np.ones(len(alone), np.uint16)])

    def _lists(self, words: Collection[str]) -> list[Slots]:
        """The postings of those words that have one, shortest first. To be let go before the next change."""
        return sorted((_read(posting) for word in words if (posting := self._postings.get(word))), key=len)

    def _counted(self, wanted: list[Slots], others: list[Slots]) -> tuple[Slots, Counts]:
        """The slots of ``wanted``, each once, and in how many of all lists each stands."""
        self._tally_up(wanted)
        for posting in others:
            self._tally[posting[self._tally.take(posting) > 0]] += 1
        return self._collect(wanted)

    def _tally_up(self, lists: list[Slots]) -> None:
        for posting in lists:
            self._tally[posting] += 1

    def _collect(self, lists: list[Slots]) -> tuple[Slots, Counts]:
        """The slots of some lists, each once, with their tally, which is nought again then."""
        slots: list[Slots] = []
        counts: list[Counts] = []
        for posting in lists:
            count = self._tally.take(posting)
            first_time = count > 0
            slots.append(posting[first_time])
            counts.append(count[first_time])
            self._tally[posting] = 0
        return np.concatenate(slots), np.concatenate(counts)


def _read(posting: array[int]) -> Slots:
    """A posting as numpy sees it, without a copy; while the view lives, the posting cannot grow."""
    return np.frombuffer(posting, np.int64)
