"""Finding percepts by their words: postings by stem, texts by their normal form. Derived, never stored.

One index covers one scope's living percepts, another one its archive. A percept has a slot, a small number
that stands for it in postings and in the columns of `milkd.ranking`; slots of what left are taken again.
Postings are flat sorted arrays of slots that numpy reads in place: a word that thousands share costs microseconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from milkd.rules.text import rare_prefix_size, terms

Slots = NDArray[np.int64]
"""Slot numbers, each once."""
Counts = NDArray[np.uint16]

WORDS_MAX = 4096
"""Words that `hits` counts: a text of many thousands must not hold the loop, whatever the contents."""
_ROOM = 1024
_SLOTS_A_WORD = 1024
"""Slots that numpy passes over in the time of the calls that one more posting costs: with more words than that makes,
one pass over all slots is the cheaper way."""
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
        words, text = terms(content)
        self._sizes[slot] = len(words)
        for word in words:
            posting = self._postings.get(word)
            if posting is None:
                self._postings[word] = array("q", (slot,))
            else:
                insort(posting, slot)
        key = hash(text)
        self._texts[key] = (*self._texts.get(key, ()), slot)
        return slot

    def remove(self, percept_id: str, content: str) -> int:
        """Take an id out and return its slot; ``content`` is what it was added with."""
        slot = self._slots.pop(percept_id)
        self._ids[slot] = ""
        words, text = terms(content)
        for word in words:
            posting = self._postings[word]
            del posting[bisect_left(posting, slot)]
            if not posting:
                del self._postings[word]
        key = hash(text)
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
        same = self._texts.get(hash(terms(content)[1]), ())
        found = [self._ids[slot] for slot in same]
        size = len(words)
        postings = [posting for word in words if (posting := self._postings.get(word))]
        # Words that no percept has are the rarest: they use up the part of the prefix that they fill.
        rare = rare_prefix_size(size, threshold) - (size - len(postings)) if size else 0
        if rare > 0 and postings:
            slots, shared = self._counted(postings, rare)
            others = self._sizes[slots].astype(np.float64)
            alike = shared >= threshold * (size + others - shared) - 1e-9
            found += [self._ids[slot] for slot in slots[alike].tolist() if slot not in same]
        return found

    def hits(self, words: Collection[str]) -> tuple[Slots, Counts]:
        """The slots that share at least one of ``words``, and how many each shares (M21).

        Where more than `WORDS_MAX` of them stand in contents, the rarest so many count, of equally rare ones the first
        by the alphabet.
        """
        postings = self._postings
        known = [word for word in words if word in postings]
        if len(known) > WORDS_MAX:
            known = sorted(sorted(known), key=lambda word: len(postings[word]))[:WORDS_MAX]
        found = [postings[word] for word in known]
        if not found:
            return NO_SLOTS, np.empty(0, np.uint16)
        if self._many(found):
            return _counted_in_one_go(found)
        lists = _read(found)
        longest = lists.pop()
        if not lists:
            return longest.copy(), np.ones(len(longest), np.uint16)
        self._tally_up(lists)
        shared = self._tally.take(longest) > 0
        self._tally[longest[shared]] += 1
        slots, counts = self._collect(lists)
        alone = longest[~shared]
        return np.concatenate([slots, alone]), np.concatenate([counts, np.ones(len(alone), np.uint16)])

    def _many(self, postings: list[array[int]]) -> bool:
        """Whether these are counted faster in one go."""
        return len(postings) > len(self._sizes) // _SLOTS_A_WORD

    def _counted(self, postings: list[array[int]], rare: int) -> tuple[Slots, Counts]:
        """The slots of the ``rare`` shortest postings at least, each once, and in how many of all each stands."""
        if self._many(postings):
            return _counted_in_one_go(postings)
        lists = _read(postings)
        wanted = lists[:rare]
        self._tally_up(wanted)
        for posting in lists[rare:]:
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


def _counted_in_one_go(postings: list[array[int]]) -> tuple[Slots, Counts]:
    """The slots of some postings, each once, and in how many of them each stands."""
    counts = np.bincount(np.frombuffer(b"".join(postings), np.int64))
    slots = np.flatnonzero(counts)
    return slots, counts[slots].astype(np.uint16)


def _read(postings: list[array[int]]) -> list[Slots]:
    """Postings as numpy sees them, without a copy, shortest first; while a view lives, its posting cannot grow."""
    return [np.frombuffer(posting, np.int64) for posting in sorted(postings, key=len)]
