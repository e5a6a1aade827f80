"""What a text says: its stems, its normal form, and whether two texts say the same (M14).

Pure: a pair of texts in, a verdict out. Whoever asks finds the candidates and picks the best of the verdicts.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Literal

import msgspec
from msgspec import Struct

from milkd.rules.weight import stronger


class Text(Struct, frozen=True):
    """A content, read once for every comparison it takes part in (M14).

    ``said`` holds the stems and the negation words (marked) by first appearance. ``negated`` is what is
    negated, ``literals`` what must stand unchanged; ``qualifiers`` and ``opposed`` are the plain words of
    those lists, ``fixed_order`` tells whether a word of that list occurs.
    """

    content: str
    normal: str
    stems: frozenset[str]
    said: tuple[str, ...]
    negated: frozenset[str]
    literals: frozenset[str]
    qualifiers: frozenset[str]
    opposed: frozenset[str]
    fixed_order: bool


class Verdict(Struct, frozen=True):
    """What two texts are to each other (M14).

    ``reason`` of a near miss is the guard that stopped it; of a restatement ``longer`` (the percept takes the
    newer text), ``shorter`` (it keeps its own) or "". ``overlap`` is the Jaccard overlap of stems, in [0, 1].
    """

    kind: Literal["restatement", "near_miss", "different"]
    reason: str
    overlap: float


class _Lists(Struct, frozen=True):
    """The word lists of words.json."""

    stop: frozenset[str]
    negation: frozenset[str]
    negation_chars: tuple[str, ...]
    qualifier: frozenset[str]
    opposed: tuple[tuple[str, str], ...]
    fixed_order: frozenset[str]
    synonyms: tuple[tuple[str, ...], ...]


_WORDS = msgspec.json.decode(resources.files(__package__).joinpath("words.json").read_bytes(), type=_Lists)
_STOP = _WORDS.stop
_NEGATION = _WORDS.negation
_LEFT_OUT = _STOP | _NEGATION
_QUALIFIER = _WORDS.qualifier
_FIXED_ORDER = _WORDS.fixed_order


def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for pair in _WORDS.opposed:
        for one, other in (pair, pair[::-1]):
            found[one] = found.get(one, frozenset()) | {other}
    return found


_OPPOSITES = _opposites()
_OPPOSED = frozenset(_OPPOSITES)

# ---------------------------------------------------------------- words

_EDGE = ".,;:!?'\"()[]{}`‘’‚“”„"
"""Edge punctuation of M14; the low quotes are the curly ones that open in German, Polish and others."""
_NOTHING = frozenset({""})
_CONTRACTION = re.compile(r"\b(?:(?P<can>can(?:['’]t|not))|(?P<will>won['’]t))\b|n['’]t\b")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u1950-\u19df\u1a20-\u1aaf"  # Tai Le, New Tai Lue, Tai Tham
    "\u1b00-\u1b7f\ua980-\ua9df"  # Balinese, Javanese
    "\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\U0001b000-\U0001b16f"  # Kana, Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
"""Scripts written without spaces, as ranges of a character class (asked of letters, digits, marks only)."""
_PIECE = re.compile(f"([{_UNSPACED}]+)|[^{_UNSPACED}]+")


class _WordChars(dict[int, int | str | None]):
    """A table for ``str.translate`` that leaves words apart by blanks, filled in as characters turn up.

    A mark belongs to the letter it stands on: Devanagari vowels are marks, and so is an accent that has no
    composed form. Variation selectors choose a glyph and say nothing.
    """

    def __missing__(self, code: int) -> int | str | None:
        char = chr(code)
        value: int | str | None = " "
        if 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            value = None
        elif char.isalnum() or unicodedata.category(char) in {"Mn", "Mc"}:
            value = code
        if len(self) < 1 << 14:  # a text of all Unicode must not stay in memory
            self[code] = value
        return value


_WORD_CHARS = _WordChars()


def _fold(text: str) -> str:
    """Text in NFKC, case-folded, its contractions written out."""
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    if "n't" in folded or "n’t" in folded or "cannot" in folded:
        folded = _CONTRACTION.sub(_written_out, folded)
    return folded


def _written_out(found: re.Match[str]) -> str:
    if found["can"]:
        return "can not"
    return "will not" if found["will"] else " not"


def _words(folded: str) -> list[str]:
    """The tokens of a folded text, in order, stop words included."""
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    words: list[str] = []
    for run in folded.translate(_WORD_CHARS).split():
        if run.isascii():
            words.append(run)
        elif any(map(str.isalnum, run)):
            for piece in _PIECE.finditer(run):
                whole = piece[0]
                if piece[1] and len(whole) > 1:
                    words.extend(map("".join, pairwise(whole)))
                else:
                    words.append(whole)
    return words


_SUFFIXES = (("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("ly", ""), ("s", ""))
_LAST_LETTERS = frozenset(suffix[-1] for suffix, _ in _SUFFIXES)


def _stem(word: str) -> str:
    """The stem of a word; a word with a digit or a letter beyond ASCII is its own."""
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    if word[-1] in _LAST_LETTERS:
        for suffix, instead in _SUFFIXES:
            rest = len(word) - len(suffix)
            if rest >= 3 and word.endswith(suffix) and not (suffix == "s" and word.endswith("ss")):
                word = word[:rest] + instead
                break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    return word


_SYNONYMS = {_stem(word): _stem(group[0]) for group in _WORDS.synonyms for word in group}


@lru_cache(maxsize=8192)
def _canonical(word: str) -> str:
    """The stem that a token counts as, its synonyms' first; "" for a stop or negation word."""
    if word in _LEFT_OUT:
        return ""
    stem = _stem(word)
    return _SYNONYMS.get(stem, stem)


def stems(text: str) -> frozenset[str]:
    """The set of stems of a query or content, synonyms as their first word (M14). Equals ``Text.stems``."""
    return _stems(_fold(text))


def _stems(folded: str) -> frozenset[str]:
    return frozenset(map(_canonical, _words(folded))) - _NOTHING


def normal(text: str) -> str:
    """The normalised text of M14: equal ones are a restatement whatever else holds."""
    return _normal(_fold(text))


@lru_cache(maxsize=1024)
def terms(content: str) -> tuple[frozenset[str], str]:
    """What a content is found by, its stems and its normalised text: read once while it moves (M14)."""
    folded = _fold(content)
    return _stems(folded), _normal(folded)


def _normal(folded: str) -> str:
    return " ".join([bare for chunk in folded.split() if (bare := chunk.strip(_EDGE))])


# ---------------------------------------------------------------- literals

_LITERAL = re.compile(r"[\d/_@#<>=+]|::|.\..|[a-z][A-Z]", re.DOTALL)
_RUN = re.compile(r"[^\W_]+")
_CLOSERS = "'\")]}’”"
_SENTENCE_END = (".", "!", "?", "。")


def _literals(text: str) -> frozenset[str]:
    """What must stand unchanged (M14, 2), case-folded, edge punctuation off. ``text`` keeps its capitals."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    between = text.split("`")
    last = len(between) - 1
    at_start = True
    for place, part in enumerate(between):
        if place % 2 and place < last:  # a backtick that nothing closes opens no span
            found.append(" ".join(part.split()))
            at_start = at_start and not part
            continue
        for chunk in part.split():
            bare = chunk.strip(_EDGE)
            if bare and _is_literal(bare):
                found.append(bare)
                at_start = False
            elif bare and (at_start or not bare.islower()):
                for word in _RUN.findall(bare):
                    if not at_start and word != "I" and word.lower() in _STOP and not word.islower():
                        found.append(word)
                    at_start = False
            if chunk.rstrip(_CLOSERS).endswith(_SENTENCE_END):
                at_start = True
    return frozenset([word.casefold().strip(_EDGE) for word in found]) - _NOTHING


def _is_literal(bare: str) -> bool:
    if _LITERAL.search(bare):
        return True
    return not bare.isascii() and any(one.islower() and other.isupper() for one, other in pairwise(bare))


# ---------------------------------------------------------------- analysis


@lru_cache(maxsize=4096)
def analyse(content: str) -> Text:
    """Read a content once: everything that ``compare`` asks of it (M14). Any string will do."""
    folded = _fold(content)
    words = _words(folded)
    said: dict[str, None] = {}
    left: set[str] = set()
    negated: set[str] = set()
    pending = False
    for word in words:
        stem = _canonical(word)
        if stem:
            said[stem] = None
            left.add(stem)
            if pending:
                negated.add(stem)
                pending = False
        elif word in _NEGATION:
            said["!" + word] = None
            pending = True
    if pending:
        negated.add("")  # it negates what stands before it, or all: still not the text without it
    if not folded.isascii():
        negated.update(" " + char for char in _WORDS.negation_chars if char in folded)
    plain = frozenset(words)
    return Text(
        content=content,
        normal=_normal(folded),
        stems=frozenset(left),
        said=tuple(said),
        negated=frozenset(negated),
        literals=_literals(content),
        qualifiers=plain & _QUALIFIER,
        opposed=plain & _OPPOSED,
        fixed_order=not plain.isdisjoint(_FIXED_ORDER),
    )


# ---------------------------------------------------------------- comparison


def compare(
    older: Text,
    newer: Text,
    *,
    older_producer: str,
    newer_producer: str,
    older_settled: bool,
    threshold: float = 0.60,
) -> Verdict:
    """Whether ``newer`` restates ``older``, nearly does, or says something else (M14).

    ``older_settled``: the older one is global or has evidence. ``threshold`` in [0, 1] is the least overlap
    of stems that is no difference.
    """
    if older.normal == newer.normal:
        return Verdict("restatement", "", 1.0)
    if not older.stems or not newer.stems:
        return Verdict("different", "", 0.0)
    shared = len(older.stems & newer.stems)
    overlap = shared / (len(older.stems) + len(newer.stems) - shared)
    if overlap < threshold:
        return Verdict("different", "", overlap)
    guard = next(_guards(older, newer), "")
    if guard:
        return Verdict("near_miss", guard, overlap)
    adds, omits = shared < len(newer.stems), shared < len(older.stems)
    if adds and omits:
        return Verdict("near_miss", "replaced", overlap)
    if adds and newer_producer != "user" and (older_settled or stronger(older_producer, newer_producer)):
        return Verdict("near_miss", "adds", overlap)
    if omits and stronger(newer_producer, older_producer):
        return Verdict("near_miss", "omits", overlap)
    return Verdict("restatement", "longer" if adds else "shorter" if omits else "", overlap)


def _guards(older: Text, newer: Text) -> Iterator[str]:
    """Guards 1 to 5 of M14 that stop the two from being one, in the order of testing."""
    if older.negated != newer.negated:
        yield "negation"
    if older.literals != newer.literals:
        yield "literal"
    if older.qualifiers != newer.qualifiers:
        yield "qualifier"
    if older.opposed != newer.opposed:
        ours, theirs = older.opposed - newer.opposed, newer.opposed - older.opposed
        if any(not theirs.isdisjoint(_OPPOSITES[word]) for word in ours):
            yield "opposed"
    if older.said != newer.said and _reordered(older, newer):
        yield "order"


def _reordered(older: Text, newer: Text) -> bool:
    """Whether what both say stands in another order, other than with its end moved to the front (M14)."""
    both = set(older.said).intersection(newer.said)
    one = [item for item in older.said if item in both]
    other = [item for item in newer.said if item in both]
    if one == other:
        return False
    if len(one) < 3 or older.fixed_order or newer.fixed_order:
        return True
    cut = other.index(one[0])
    return other[cut:] + other[:cut] != one


def rare_prefix_size(n: int, threshold: float) -> int:
    """How many of any ``n`` stems suffice to meet every set that overlaps all n by ``threshold`` (Jaccard).

    Such a set shares at least threshold · n of them, so it cannot miss n − ceil(threshold · n) + 1. Rounding
    errs towards more; never more than ``n``, nor less than one of a set that is not empty.
    """
    least = math.ceil(threshold * n - 1e-9)
    return min(n, max(n - least + 1, 1))
