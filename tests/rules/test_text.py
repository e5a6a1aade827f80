"""Restatement or not (M14): the golden pairs, each guard by a table, and what holds of any text."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import golden
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milkd.rules.text import Verdict, analyse, compare, normal, rare_prefix_size, stems

PRODUCERS = ("user", "primary", "escalation", "system")
WORDS = golden.vectors("words")
VOCABULARY = sorted({*WORDS["stop"], *WORDS["negation"], *WORDS["qualifier"]})
VOCABULARY += [
    "uv",
    "tabs",
    "spaces",
    "deploys",
    "running",
    "`a b`",
    "8080",
    "C++",
    "US",
    "May",
    "Tests.",
    "数据库",
]

texts = st.one_of(st.text(), st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join))
anything = st.one_of(texts, st.text(st.characters()))  # lone surrogates too
producers = st.sampled_from(PRODUCERS)


def judge(older: str, newer: str, by: tuple[str, str] = ("primary", "primary"), settled: bool = False) -> Verdict:
    return compare(analyse(older), analyse(newer), older_producer=by[0], newer_producer=by[1], older_settled=settled)


def told(older: str, newer: str) -> str:
    """The reason of a near miss, else the kind."""
    verdict = judge(older, newer)
    return verdict.reason if verdict.kind == "near_miss" else verdict.kind


@pytest.mark.parametrize("pair", golden.vectors("near-identity")["pairs"], ids=lambda p: f"{p['newer']:.40}")
def test_golden_pair(pair: dict[str, Any]) -> None:
    by = (pair["older_producer"], pair["newer_producer"])
    verdict = judge(pair["older"], pair["newer"], by, pair.get("older_settled", False))
    assert (verdict.kind, verdict.reason) == (pair["verdict"], pair["reason"])
    assert verdict.overlap == pytest.approx(pair["overlap"], abs=1e-9)


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("use", "use"),
        ("uses", "use"),
        ("using", "use"),  # a synonym, by its list
        ("retries", "retry"),
        ("retried", "retry"),
        ("flies", "fli"),  # too short for -ies; -es leaves three
        ("committing", "commit"),
        ("stopped", "stop"),
        ("adding", "add"),  # four letters keep their double
        ("running", "runn"),
        ("calls", "call"),
        ("calling", "call"),  # l and s stay doubled
        ("passes", "pass"),
        ("pass", "pass"),
        ("stores", "stor"),
        ("store", "stor"),
        ("quickly", "quick"),
        ("large", "big"),
        ("repositories", "repo"),
        ("databases", "db"),
        ("favours", "prefer"),
        ("80800", "80800"),  # no letters
        ("münchens", "münchens"),  # not ASCII
    ],
)
def test_stem(word: str, stem: str) -> None:
    assert stems(word) == {stem}


def test_stop_and_negation_words_are_left_out() -> None:
    assert stems(" ".join(WORDS["stop"] + WORDS["negation"])) == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("数据库", {"数据", "据库"}),
        ("水", {"水"}),
        ("API服务器v2", {"api", "服务", "务器", "v2"}),
        ("ภาษาไทย", {"ภา", "าษ", "ษา", "าไ", "ไท", "ทย"}),
        ("ひらカタ", {"ひら", "らカ", "カタ"}),
        ("서버는 밤에", {"서버는", "밤에"}),
        ("हिन्दी", {"हिन्दी"}),
        ("❤\ufe0fcache 1\ufe0f\u20e3", {"cach", "1"}),
        ("snake_case-word", {"snak", "cas", "word"}),
    ],
)
def test_tokens_by_script(text: str, expected: set[str]) -> None:
    assert stems(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  The  user's\tname, is (Anna)! ", "the user's name is anna"),
        ("Don't, can't, won’t; ISN’T cannot.", "do not can not will not is not can not"),
        ("a , b", "a b"),
        ("“Quoted” `code` [x] {y}", "quoted code x y"),
        ("Ｆｕｌｌ　ｗｉｄｔｈ", "full width"),
        ("?!", ""),
    ],
)
def test_normal(text: str, expected: str) -> None:
    assert normal(text) == expected


# ---------------------------------------------------------------- guards


@pytest.mark.parametrize(
    ("text", "literals"),
    [
        ("Listen on 8080.", {"8080"}),
        ("Edit etc/app and my_file", {"etc/app", "my_file"}),
        ("Mail a@b about #bug", {"a@b", "#bug"}),
        ("x <y >z = + std::move", {"<y", ">z", "=", "+", "std::move"}),
        ("Read app.toml. Then stop.", {"app.toml"}),
        ("Call parseFile or ÉcoleÄrger", {"parsefile", "écoleärger"}),
        ("Run `git push  --force` now", {"git push --force"}),
        ("Run ```make all``` now", {"make all"}),
        ("A lone ` tick", set()),
        ("In May, ask IT of the US", {"may", "it", "us"}),
        ("Ask the US-based team", {"us"}),
        ("Done. It works! (May be.) As we know", set()),
        ("- The user and I agree", set()),
        ("好。 It works", set()),
    ],
)
def test_literals(text: str, literals: set[str]) -> None:
    assert analyse(text).literals == literals


@pytest.mark.parametrize(
    ("older", "newer", "outcome"),
    [
        ("Deploy on green builds", "Deploy on green builds? No.", "negation"),
        ("Avoid tabs around tables here", "Avoid tables around tabs here", "negation"),
        ("Never not use plain tabs", "Never use plain tabs", "restatement"),
        ("서버 재시작 허용 않음", "서버 재시작 허용 않음!", "restatement"),
        ("Ask the US team before release", "Ask the team before release", "literal"),
        ("Use plain tabs everywhere", "Usually use plain tabs everywhere", "qualifier"),
        ("Logs of workers go to disk", "Logs of workers go from disk", "opposed"),
        ("Users must reset passwords", "Users may reset passwords", "opposed"),
        ("Alpha beta gamma delta", "Gamma delta alpha beta", "restatement"),
        ("Alpha beta gamma delta", "Gamma delta beta alpha", "order"),
        ("Alpha beta then gamma", "Gamma then alpha beta", "order"),
        ("Alpha beta", "Beta alpha", "order"),
        ("Alpha beta gamma delta", "Alpha beta gamma omega", "replaced"),
        ("Alpha beta gamma", "Omega psi chi", "different"),
    ],
)
def test_guard(older: str, newer: str, outcome: str) -> None:
    assert told(older, newer) == outcome


@pytest.mark.parametrize("older", PRODUCERS)
@pytest.mark.parametrize("newer", PRODUCERS)
@pytest.mark.parametrize("settled", [False, True])
def test_more_and_fewer_words_by_standing(older: str, newer: str, settled: bool) -> None:
    rank = {"user": 2, "primary": 1, "escalation": 1, "system": 0}
    short, full = "Alpha beta gamma", "Alpha beta gamma delta"
    stopped = newer != "user" and (settled or rank[older] > rank[newer])
    expected = ("near_miss", "adds") if stopped else ("restatement", "longer")
    more = judge(short, full, (older, newer), settled)
    assert (more.kind, more.reason) == expected
    expected = ("near_miss", "omits") if rank[newer] > rank[older] else ("restatement", "shorter")
    fewer = judge(full, short, (older, newer), settled)
    assert (fewer.kind, fewer.reason) == expected


def test_the_threshold_itself_is_enough() -> None:
    older, newer = analyse("alpha beta gamma"), analyse("alpha beta gamma delta epsilon")
    who = {"older_producer": "user", "newer_producer": "user"}
    assert compare(older, newer, **who, older_settled=False, threshold=0.60).reason == "longer"
    assert compare(older, newer, **who, older_settled=False, threshold=0.61).kind == "different"


# ---------------------------------------------------------------- what holds of any text


@given(anything)
@example("n't")
@example("\ud800n’t 不")
def test_any_text_is_read_and_read_alike(text: str) -> None:
    first = analyse(text)
    assert analyse.__wrapped__(text) == first
    assert stems(text) == first.stems
    assert normal(text) == first.normal
    assert "" not in first.stems
    assert {item for item in first.said if not item.startswith("!")} == first.stems


@given(texts, texts, st.tuples(producers, producers), st.booleans(), st.floats(0, 1))
def test_compare_is_a_function_of_the_pair(
    older: str, newer: str, by: tuple[str, str], settled: bool, threshold: float
) -> None:
    def verdict(one: str, other: str) -> Verdict:
        return compare(
            analyse(one),
            analyse(other),
            older_producer=by[0],
            newer_producer=by[1],
            older_settled=settled,
            threshold=threshold,
        )

    first = verdict(older, newer)
    verdict(newer, older)
    assert verdict(older, newer) == first
    if first.kind == "different":
        assert first.overlap < threshold or not stems(older) or not stems(newer)
    else:
        assert first.overlap >= threshold
    assert (first.reason != "") or first.kind != "near_miss"


@given(texts, texts)
def test_overlap_is_symmetric_and_jaccard(older: str, newer: str) -> None:
    there, back = judge(older, newer), judge(newer, older)
    assert there.overlap == back.overlap
    one, other = stems(older), stems(newer)
    if one and other:
        assert there.overlap == len(one & other) / len(one | other)
    else:
        assert there.overlap == (1.0 if normal(older) == normal(newer) else 0.0)


@given(anything, producers, producers, st.booleans())
def test_equal_normal_texts_are_a_restatement(text: str, by: str, then_by: str, settled: bool) -> None:
    for other in (text, f"  ({text})! ", normal(text)):
        if normal(other) == normal(text):
            assert judge(text, other, (by, then_by), settled) == Verdict("restatement", "", 1.0)
            assert stems(other) == stems(text)


@given(texts)
def test_compatible_forms_read_alike(text: str) -> None:
    composed = analyse(unicodedata.normalize("NFKC", text))
    for form in ("NFC", "NFD", "NFKD"):
        other = analyse(unicodedata.normalize(form, text))
        assert (other.normal, other.stems, other.literals) == (
            composed.normal,
            composed.stems,
            composed.literals,
        )


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_full_width_reads_as_ascii(text: str) -> None:
    wide = "".join(chr(ord(char) + 0xFEE0) if char > " " else "\u3000" for char in text)
    plain, other = analyse(text), analyse(wide)
    assert (other.normal, other.said, other.negated, other.literals) == (
        plain.normal,
        plain.said,
        plain.negated,
        plain.literals,
    )


@given(st.lists(st.sampled_from(["don't", "Can't", "won't", "isn't", "tabs", "WON'T", "user's"]), max_size=6))
def test_either_apostrophe_contracts(words: list[str]) -> None:
    straight = " ".join(words)
    curly = analyse(straight.replace("'", "’"))
    plain = analyse(straight)
    assert (curly.stems, curly.said, curly.negated) == (plain.stems, plain.said, plain.negated)


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5), min_size=2))
def test_han_yields_character_pairs(text: str) -> None:
    folded = unicodedata.normalize("NFKC", text)
    assert stems(text) == {folded[i : i + 2] for i in range(len(folded) - 1)}


# ---------------------------------------------------------------- the prefilter


@given(
    st.sets(st.integers(0, 30), min_size=1, max_size=20),
    st.sets(st.integers(0, 30), min_size=1, max_size=20),
    st.floats(0.01, 1),
    st.randoms(use_true_random=False),
)
def test_no_prefix_misses_an_overlap(one: set[int], other: set[int], threshold: float, random: Any) -> None:
    if len(one & other) / len(one | other) >= threshold:
        order = sorted(one)
        random.shuffle(order)
        assert other.intersection(order[: rare_prefix_size(len(one), threshold)])


@given(st.integers(1, 2000), st.integers(1, 100))
def test_prefix_size_is_exact_where_the_product_is(n: int, percent: int) -> None:
    exact = n - math.ceil(percent * n / 100) + 1
    size = rare_prefix_size(n, percent / 100)
    assert exact <= size <= exact + 1
    assert 1 <= size <= n


def test_prefix_of_nothing() -> None:
    assert rare_prefix_size(0, 0.6) == 0
    assert rare_prefix_size(5, 0.6) == 3
    assert rare_prefix_size(5, 0.0) == 5
