"""Facts and queries of a known rarity, and homes that hold them: the load of `make bench`, the same each time."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path

COMMON = 40
"""Common words; each stands in 1 to 5 % of the facts."""
CREATED = "2026-01-05T09:00:00.000000Z"
_SYLLABLES = ("ba", "do", "fi", "gu", "ka", "lo", "mi", "nu", "pa", "ro", "si", "tu", "va", "xo", "zi", "re")


def word(number: int) -> str:
    """A made-up word, another one for each number, that no stemming rule touches."""
    text = ""
    for _ in range(4):
        number, digit = divmod(number, len(_SYLLABLES))
        text += _SYLLABLES[digit]
    return text + "k"


class Corpus:
    """``size`` facts of about eight words each, and queries of three words with the rarities that we ask for."""

    def __init__(self, size: int, seed: int = 7) -> None:
        self.size = size
        self._random = random.Random(f"{seed} {size}")
        self._shares = [0.01 + 0.04 * n / (COMMON - 1) for n in range(COMMON)]
        # Five rare words a fact, each in fewer than 0.1 % of them (in two facts at least).
        self._rare = max(size * 5 // max(2, size // 1500), 50)

    def fact(self) -> str:
        """One fact: one common word or more, five rare ones."""
        picked = [word(n) for n, share in enumerate(self._shares) if self._random.random() < share]
        picked += [word(COMMON + self._random.randrange(self._rare)) for _ in range(5)]
        self._random.shuffle(picked)
        return "The " + " ".join(picked)

    def query(self) -> str:
        """Three words: one common and two rare; one query in ten has three common ones."""
        common = [word(n) for n in self._random.sample(range(COMMON), 3)]
        if self._random.random() < 0.1:
            return " ".join(common)
        return " ".join([common[0], *(word(COMMON + self._random.randrange(self._rare)) for _ in range(2))])


def write_home(home: Path, corpus: Corpus, session: str) -> None:
    """A home whose session and global scope hold the corpus, as milk's own files (M3)."""
    memory = home / "memory"
    memory.mkdir(parents=True, mode=0o700)
    chance = random.Random(corpus.size)

    def percept(strength: float) -> dict[str, object]:
        return {
            "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            "content": corpus.fact(),
            "producer": "primary",
            "w": strength,
            "w_confirmed": strength,
            "roles": {},
            "created_at": CREATED,
            "updated_at": CREATED,
        }

    global_count = min(4000, corpus.size // 10)
    for name, count in (("global", global_count), (session, corpus.size - global_count)):
        percepts = [percept(0.55 + 0.24 * chance.random()) for _ in range(count)]
        document = {"percepts": percepts, "engrams": [], "edges": []}
        (memory / f"{name}.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
