"""Recall and injection (M21, M22): the fast way finds what a plain reading of the rules finds."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from milk_client import wire
from milk_client.errors import Invalid
from world import DAY_S, World

import milkd.index
from milkd.index import WORDS_MAX, Index
from milkd.reading import inject, recall
from milkd.recording import Caller
from milkd.rules import text, weight
from milkd.rules.percept import GLOBAL, Held, PerceptRecord, stamp
from milkd.store import Store

WORDS = [f"word{letter}k" for letter in "abcdefgh"]
numbers = st.sampled_from([0.0, 0.1, 0.2, 0.2 + 5e-10, 0.25, 0.3, 0.35, 0.5, 0.7, 0.8, 0.9, 1.0])
percepts = st.fixed_dictionaries(
    {
        "words": st.lists(st.sampled_from(WORDS), min_size=0, max_size=4, unique=True),
        "scope": st.sampled_from([GLOBAL, "here", "there"]),
        "w": numbers,
        "w_confirmed": numbers,
        "core": st.sampled_from([False, False, False, True]),
        "producer": st.sampled_from(["user", "primary", "system"]),
        "consumer": st.sampled_from(["", "", "primary", "escalation"]),
        "evidence": st.integers(0, 5),
        "at_s": st.sampled_from([0.0, 0.5 * DAY_S, DAY_S]),
        "age_days": st.sampled_from([-1.0, 0.0, 0.0, 3.0, 400.0]),
    }
)
callers = st.sampled_from(["primary", "escalation", "user"])
queries = st.lists(st.sampled_from([*WORDS, "the", "unknownk"]), max_size=5).map(" ".join)


def store_of(drawn: list[dict[str, Any]], knobs: dict[str, Any]) -> World:
    world = World(knobs)
    store = world.store
    store.clocks.set_reading(GLOBAL, DAY_S)
    store.clocks.set_reading("here", DAY_S)
    for number, one in enumerate(drawn):
        updated = world.now.wall - one["age_days"] * DAY_S
        record = PerceptRecord(
            id=f"{number:08x}-0000-4000-8000-000000000000",
            content=f"the {' '.join(one['words'])}, number x{number}x",
            producer=one["producer"],
            consumer=one["consumer"],
            w=one["w"],
            w_confirmed=max(one["w"], one["w_confirmed"]),
            created_at=stamp(updated),
            updated_at=stamp(updated),
            core=one["core"],
            evidence=one["evidence"],
        )
        store.put("percept", record.id, Held(record, one["scope"], one["at_s"], 0.0, updated, number))
    return world


def candidates(store: Store, caller: Caller, min_confidence: float | None) -> list[Held]:
    """M21 to the letter, one percept after the other."""
    found = []
    for held in store.percepts.values():
        record = held.record
        if held.scope not in (GLOBAL, caller.session) or not store.lives(held):
            continue
        if record.consumer and caller.role not in ("user", record.consumer):
            continue
        limit = min_confidence
        if limit is None:
            trusted = held.scope == GLOBAL or record.producer == "user"
            limit = store.knobs.prune_threshold if trusted else store.knobs.min_confidence
        if weight.at_least(store.present(held), limit):
            found.append(held)
    return found


def order(world: World, words: frozenset[str], held: Held) -> tuple[Any, ...]:
    hits = len(words & text.stems(held.record.content))
    return (-hits, *by_rank(world, held))


def by_rank(world: World, held: Held) -> tuple[Any, ...]:
    knobs = world.store.knobs
    rank = weight.rank_score(world.store.present(held), held.record.evidence, held.updated_ts, world.now.wall, knobs)
    return (-rank, -held.updated_ts, held.id)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(percepts, max_size=40),
    queries,
    callers,
    st.sampled_from([None, None, 0.0, 0.3, 0.6]),
    st.integers(1, 8),
    st.sampled_from(["restore", "add"]),
)
def test_recall_is_what_the_rule_says(
    drawn: list[dict[str, Any]], query: str, role: str, least: float | None, most: int, reinforcement: str
) -> None:
    world = store_of(drawn, {"reinforcement": reinforcement})
    caller = Caller("c", "here", role)
    words = text.stems(query)
    expected = candidates(world.store, caller, least)
    if words:
        expected = [held for held in expected if words & text.stems(held.record.content)]
    expected.sort(key=lambda held: order(world, words, held))
    found = recall(world.store, caller, query, world.now, least, most)
    assert [held.id for held in found] == [held.id for held in expected[:most]]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(percepts, max_size=40),
    queries,
    callers,
    st.booleans(),
    st.integers(1, 8),
    st.sampled_from([60, 200, 4096]),
)
def test_injection_is_what_the_rule_says(
    drawn: list[dict[str, Any]], prompt: str, role: str, relevant: bool, most: int, budget: int
) -> None:
    world = store_of(drawn, {"percept_inject_max": most, "percept_inject_max_bytes": budget})
    caller = Caller("c", "here", role)
    words = text.stems(prompt)
    kept = candidates(world.store, caller, None)

    def shares(held: Held) -> bool:
        return bool(words & text.stems(held.record.content))

    if relevant:
        kept = [held for held in kept if held.record.core or shares(held)]
    total = len(kept)
    # Dropped until the budgets hold: what shares nothing first, the lowest rank first, core last (M22).
    kept.sort(key=lambda held: (not held.record.core, not shares(held), *by_rank(world, held)))
    core = [held for held in kept if held.record.core]
    core.sort(key=lambda held: by_rank(world, held))
    kept = core + [held for held in kept if not held.record.core]
    while len(kept) > most or sum(len(held.record.content.encode()) for held in kept) > budget:
        kept.pop()
    kept.sort(key=lambda held: (not held.record.core, *order(world, words, held)))
    block, found, dropped = inject(world.store, caller, prompt, world.now, relevant=relevant)
    assert [held.id for held in found] == [held.id for held in kept]
    assert dropped == total - len(kept)
    assert (block == "") == (not kept)


def hits(index: Index, words: frozenset[str]) -> dict[str, int]:
    """How many of some words each content has that has any, by id."""
    slots, counts = index.hits(words)
    return dict(zip(index.ids(slots), counts.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.lists(st.sampled_from(WORDS), max_size=5, unique=True)), max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=5, unique=True),
    st.sampled_from([0.3, 0.6, 1.0]),
)
def test_an_index_finds_what_a_scan_finds_through_any_history(
    history: list[tuple[int, list[str]]], query: list[str], threshold: float
) -> None:
    index = Index()
    there: dict[str, str] = {}
    for key, words in history:
        name = f"p{key}"
        if name in there:
            index.remove(name, there.pop(name))
        else:
            there[name] = " ".join(words)
            index.add(name, there[name])
    asked = frozenset(query)
    expected = {name: len(asked & text.stems(content)) for name, content in there.items()}
    content = " ".join(query)
    for share in (1, 1 << 20):  # counts word by word, and all words in one go
        with patch.object(milkd.index, "_SLOTS_A_WORD", share):
            assert hits(index, asked) == {name: count for name, count in expected.items() if count}
            alike = set(index.similar(content, asked, threshold))
        for name, other in there.items():
            union = asked | text.stems(other)
            overlap = len(asked & text.stems(other)) / len(union) if union else 0.0
            if (asked and overlap >= threshold) or text.normal(other) == text.normal(content):
                assert name in alike


def test_of_very_many_words_the_rarest_count() -> None:
    index = Index()
    for name, words in {"a": "abc", "b": "ab", "c": "ad", "d": "ae"}.items():
        index.add(name, " ".join(f"word{letter}k" for letter in words))
    asked = frozenset([*WORDS, "unknownk"])
    assert hits(index, asked) == {"a": 3, "b": 2, "c": 2, "d": 2}
    with patch.object(milkd.index, "WORDS_MAX", 5):
        assert hits(index, asked) == {"a": 3, "b": 2, "c": 2, "d": 2}, "what no content has does not count"
    with patch.object(milkd.index, "WORDS_MAX", 4):
        assert hits(index, asked) == {"a": 2, "b": 1, "c": 1, "d": 1}, "all but the word that all have"
    with patch.object(milkd.index, "WORDS_MAX", 2):
        assert hits(index, asked) == {"a": 1, "c": 1}, "of equally rare ones the first by the alphabet"


def test_a_prompt_of_thousands_of_words_reads_so_many_postings_at_most() -> None:
    index = Index()
    words = [f"w{number}w" for number in range(WORDS_MAX + 1000)]
    for start in range(0, len(words), 100):
        index.add(f"p{start}", " ".join(words[start : start + 100]))
    assert sum(hits(index, frozenset(words[:WORDS_MAX])).values()) == WORDS_MAX
    assert sum(hits(index, frozenset(words)).values()) == WORDS_MAX


def test_a_text_is_measured_in_bytes() -> None:
    world = World({})
    for ask in (wire.Get(query="é" * 50_000), wire.Inject(prompt="é" * 50_000), wire.List(pattern="é" * 50_000)):
        world.ask(ask)
    for ask in (wire.Get(query="é" * 50_001), wire.Inject(prompt="é" * 50_001), wire.List(pattern="é" * 50_001)):
        with pytest.raises(Invalid, match="has 100002 bytes; at most 100000"):
            world.ask(ask)


def test_ranks_stay_right_far_from_where_they_were_written() -> None:
    """The columns are written anew when a base lies hundreds of half-lives back (M10)."""
    world = World({"session_half_life_days": 1e-5, "recency_half_life_days": 1e-5, "min_confidence": 0.21})
    world.attach("a", "here")
    for number in range(20):
        world.say("a", f"Fact x{number} about {WORDS[number % 8]}")
        world.advance(0.1)
    caller = Caller("c", "here", "user")
    for _ in range(3):
        found = recall(world.store, caller, "fact", world.now, None, 20)
        expected = sorted(candidates(world.store, caller, None), key=lambda held: by_rank(world, held))
        assert [held.id for held in found] == [held.id for held in expected]
        world.advance(0.3)
    world.advance(2000.0)
    world.say("a", "Fact y about nothing at all")
    found = recall(world.store, caller, "fact", world.now, 0.0, 20)
    assert [held.record.content for held in found] == ["Fact y about nothing at all"]
