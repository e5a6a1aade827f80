"""The knobs: what is taken, what is warned of, what is refused, and that nothing else ever happens."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkd.config import DEFAULT, BadConfig, Config, Daemon, Memory, parse, parse_legacy, shown

SAMPLE = Path(__file__).resolve().parents[1] / "etc" / "milkd.toml"
MEMORY_KNOBS = Memory.__struct_fields__
DAEMON_KNOBS = Daemon.__struct_fields__

HALF_LIVES = ("session_half_life_days", "global_half_life_days", "recency_half_life_days")
POSITIVE = (
    *HALF_LIVES,
    "recency_boost",
    "global_archive_after_days",
    "run_idle_after_minutes",
    "snapshot_interval_s",
)
SHARES = (
    "reconfirm_boost",
    "reconfirm_cap",
    "promote_threshold",
    "prune_threshold",
    "duplicate_threshold",
    "min_confidence",
)
COUNTS = (
    "max_results",
    "global_max",
    "core_max",
    "percept_inject_max",
    "percept_inject_max_bytes",
    "max_content_bytes",
)
CHOICES = {
    "reinforcement": ("restore", "add"),
    "policy": ("running-time",),
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("text", "json"),
    "watch": ("auto", "poll", "off"),
}


def memory(line: str) -> Config:
    return parse(f"[memory]\n{line}\n".encode())


def daemon(line: str) -> Config:
    return parse(f"[daemon]\n{line}\n".encode())


def table_of(key: str) -> str:
    return "memory" if key in MEMORY_KNOBS else "daemon"


def one(key: str, value: str) -> Config:
    return parse(f"[{table_of(key)}]\n{key} = {value}\n".encode())


def refused(data: str | bytes, read: Any = parse) -> tuple[str, ...]:
    with pytest.raises(BadConfig) as caught:
        read(data if isinstance(data, bytes) else data.encode())
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def refused_value(key: str, value: str) -> str:
    """The one problem of a file with one knob; names file, key and allowed range."""
    (problem,) = refused(f"[{table_of(key)}]\n{key} = {value}\n")
    assert problem.startswith(f"milkd.toml: {table_of(key)}.{key} = ")
    assert ": allowed: " in problem
    return problem


# ---------------------------------------------------------------- taken


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"[memory]\n", b"[daemon]\r\n[memory]\r\n", b"# x"])
def test_a_file_that_says_nothing_is_the_default(data: bytes) -> None:
    assert parse(data) == DEFAULT == Config()


@pytest.mark.parametrize("key", [*MEMORY_KNOBS, *DAEMON_KNOBS])
def test_every_knob_is_known_and_takes_its_default(key: str) -> None:
    assert one(key, json.dumps(shown(DEFAULT)[table_of(key)][key])) == DEFAULT


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("session_half_life_days", "7", 7.0),
        ("prune_threshold", "0.05", 0.05),
        ("reconfirm_cap", "1", 1.0),
        ("max_results", "9", 9),
        ("max_results", "9.0", 9),
        ("run_idle_after_minutes", '"never"', math.inf),
        ("run_idle_after_minutes", "0.5", 0.5),
        ("reinforcement", '"add"', "add"),
        ("archive_keep_days", "90", 90.0),
        ("checkpoint_s", "15", 15.0),
        ("watch", '"off"', "off"),
        ("max_message_bytes", "4096", 4096),
    ],
)
def test_value(key: str, value: str, expected: object) -> None:
    config = one(key, value)
    assert config.warnings == ()
    got = getattr(getattr(config, table_of(key)), key)
    assert got == expected
    assert type(got) is type(expected)


def test_bom_and_windows_line_ends() -> None:
    assert parse(b"\xef\xbb\xbf[memory]\r\nmax_results = 7").memory.max_results == 7


@pytest.mark.parametrize("key", [*POSITIVE, *SHARES, *COUNTS])
def test_zero_is_the_default_with_a_warning(key: str) -> None:
    config = one(key, "0")
    assert config.memory == DEFAULT.memory
    (warning,) = config.warnings
    assert warning.startswith(f"milkd.toml: memory.{key} = 0: stands for the default, ")


@pytest.mark.parametrize("value", ["0", "0.0", "-0.0"])
def test_zero_that_is_the_default_needs_no_warning(value: str) -> None:
    assert memory(f"archive_keep_days = {value}") == DEFAULT


@pytest.mark.parametrize("key", sorted(CHOICES))
def test_an_empty_word_is_the_default_with_a_warning(key: str) -> None:
    config = one(key, '""')
    assert (config.memory, config.daemon) == (DEFAULT.memory, DEFAULT.daemon)
    assert len(config.warnings) == 1


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("key", [*POSITIVE, *SHARES, *COUNTS, "archive_keep_days", "sweep_s", "in_flight_max"])
@pytest.mark.parametrize(
    "value", ["-1", "-0.5", "nan", "inf", "-inf", "true", '"3"', '""', "[1]", "{a = 1}", "1979-05-27"]
)
def test_no_number_of_its_meaning(key: str, value: str) -> None:
    if value == '""':
        assert one(key, value).warnings
    else:
        refused_value(key, value)


@pytest.mark.parametrize("key", SHARES)
def test_no_share_above_one(key: str) -> None:
    assert "to 1" in refused_value(key, "1.01")


@pytest.mark.parametrize("key", COUNTS)
def test_counts_are_whole(key: str) -> None:
    assert "a whole number from 1" in refused_value(key, "2.5")
    refused_value(key, "0x" + "f" * 5000)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("sweep_s", "1.5", "from 0.01 to 1"),
        ("checkpoint_s", "16", "from 0.1 to 15"),
        ("max_message_bytes", "100", "from 4096 to 67108864"),
        ("session_half_life_days", '"never"', "a number above 0"),
        ("run_idle_after_minutes", '"Never"', 'a number above 0 or "never"'),
        ("archive_keep_days", "-3", "a number above 0 or 0 (never dropped)"),
        ("prune_threshold", "0.8", "below memory.promote_threshold (0.8)"),
        ("policy", '"last-access"', '"running-time" ("last-access" is not in this version)'),
    ],
)
def test_the_problem_names_value_and_range(key: str, value: str, allowed: str) -> None:
    problem = refused_value(key, value)
    assert f" = {value}: " in problem
    assert problem.endswith(allowed)


@pytest.mark.parametrize("key", sorted(CHOICES))
@pytest.mark.parametrize("value", ['"Restore"', '"zzz"', "1", "true", "[]"])
def test_no_other_word(key: str, value: str) -> None:
    problem = refused_value(key, value)
    assert all(f'"{word}"' in problem for word in CHOICES[key])


def test_prune_is_below_promote() -> None:
    assert memory("prune_threshold = 0.5\npromote_threshold = 0.51").memory.prune_threshold == 0.5
    (problem,) = refused("[memory]\npromote_threshold = 0.2")
    assert "prune_threshold = 0.2: allowed: above 0 and below memory.promote_threshold (0.2)" in problem
    (problem,) = refused("[memory]\npromote_threshold = 2\nprune_threshold = 0.9")
    assert "promote_threshold = 2" in problem


def test_a_content_fits_into_a_message() -> None:
    (problem,) = refused("[memory]\nmax_content_bytes = 5000\n[daemon]\nmax_message_bytes = 8192")
    assert "memory.max_content_bytes = 5000: allowed: from 1 to half of daemon.max_message_bytes (8192)" in problem


def test_all_problems_are_told_at_once() -> None:
    problems = refused("[memory]\nmin_confidence = 2\nmax_results = -1\npolicy = 3\n[daemon]\nsweep_s = 9\nwatch = 1")
    assert [re.split(" [=] ", problem)[0] for problem in problems] == [
        "milkd.toml: memory.min_confidence",
        "milkd.toml: memory.max_results",
        "milkd.toml: memory.policy",
        "milkd.toml: daemon.sweep_s",
        "milkd.toml: daemon.watch",
    ]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[memory]\nmax_results = \n", "line 2"),
        (b"[memory]\nmax_results = 1\nmax_results = 2\n", "line 3"),
        (b"[memory]\n# ok\nname = '\xe9'\n", "not UTF-8: line 3, byte 0xe9"),
        ("[memory]\n".encode("utf-16"), "not UTF-8: line 1"),
        (b"a = " + b"[" * 100_000, "not TOML"),
        (b"[memory]\nmax_results = " + b"9" * 5000, "not TOML"),
        (b"memory = 3\n", "memory = 3: allowed: a table of knobs"),
        (b"[[memory]]\n", "memory = a list: allowed: a table of knobs"),
    ],
)
def test_a_file_that_cannot_be_read(data: bytes, told: str) -> None:
    (problem,) = refused(data)
    assert problem.startswith("milkd.toml: ")
    assert told in problem


def test_the_name_of_the_file_is_the_callers() -> None:
    with pytest.raises(BadConfig, match=r"^here\.toml: not TOML"):
        parse(b"=", name="here.toml")


# ---------------------------------------------------------------- warned of


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        ("[memory]\nmax_result = 3", "memory.max_result: unknown, did you mean max_results?; ignored"),
        ("[memory]\nzzzz = 3", "memory.zzzz: unknown; ignored"),
        ("[memory]\nwatch = 'off'", "memory.watch: unknown here, it belongs to [daemon]; ignored"),
        ("[daemon]\nmax_results = 3", "daemon.max_results: unknown here, it belongs to [memory]; ignored"),
        ("[memroy]\nmax_results = 3", "memroy: unknown, did you mean [memory]?; ignored"),
        ("max_results = 3", "max_results: unknown here, it belongs to [memory]; ignored"),
        ("[memory]\n'a b' = 3", 'memory."a b": unknown; ignored'),
        ("[memory.max_results_]\nx = 1", "memory.max_results_: unknown, did you mean max_results?; ignored"),
        ("[memory]\ntop_k = 8", 'memory.top_k: not used by the policy "running-time"; ignored'),
        ("[daemon]\ntop_k = 8", "daemon.top_k: unknown; ignored"),
    ],
)
def test_unknown(data: str, warning: str) -> None:
    config = parse(data.encode())
    assert config.warnings == (f"milkd.toml: {warning}",)
    assert (config.memory, config.daemon) == (DEFAULT.memory, DEFAULT.daemon)


def test_each_knob_of_the_other_policy_is_warned_of() -> None:
    config = memory("decay_half_life_hours = 720\nconsolidate_threshold = 20\ntop_k = 8")
    assert len(config.warnings) == 3


@pytest.mark.parametrize("keys", [["decay_per_session"], ["decay_per_session", "global_decay_per_session"]])
def test_retired_keys_share_one_warning(keys: list[str]) -> None:
    (warning,) = memory("\n".join(f"{key} = -1" for key in keys)).warnings
    assert all(f"memory.{key}" in warning for key in keys)
    (warning,) = parse_legacy(json.dumps({"memory": dict.fromkeys(keys, 0.1)}).encode()).warnings
    assert all(f"memory.{key}" in warning for key in keys)


# ---------------------------------------------------------------- config.json


@pytest.mark.parametrize(
    "data", ["{}", '{"memory": {}}', '{"memory": null}', '{"model": "x", "daemon": {"sweep_s": -1}}']
)
def test_legacy_that_says_nothing_is_the_default(data: str) -> None:
    assert parse_legacy(data.encode()) == DEFAULT


def test_legacy_block() -> None:
    data = '\ufeff{"memory": {"max_results": 8, "global_max": 5e3, "prune_threshold": null}, "memory2": 1}'
    config = parse_legacy(data.encode())
    assert config.memory == msgspec.structs.replace(DEFAULT.memory, max_results=8)
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[]", "not a JSON object"),
        (b"nul", "not JSON: Expecting value: line 1 column 1"),
        (b'{"memory": {"max_results": 3,}}', "line 1 column"),
        (b'{"memory": []}', "memory = a list: allowed: a table of knobs"),
        (b'{"memory": {"recency_boost": NaN}}', "memory.recency_boost = nan: allowed: a number above 0"),
        (b'{"memory": {"recency_boost": 1e400}}', "memory.recency_boost = inf: allowed: a number above 0"),
        (b'{"memory": {"max_results": 1, "max_results": 2}}', "memory.max_results: occurs twice"),
        (b'{"memory": {}, "memory": {}}', "memory: occurs twice"),
        (b'{"memory": {"policy": "\\ud800"}}', "\\ud800"),
        (b"[" * 100_000, "not JSON: nested too deep"),
        (b"\xff{}", "not UTF-8: line 1, byte 0xff"),
    ],
)
def test_legacy_refused(data: bytes, told: str) -> None:
    (problem,) = refused(data, parse_legacy)
    assert problem.startswith("config.json: ")
    assert told in problem
    problem.encode()


# ---------------------------------------------------------------- shown, sample


def test_shown_has_every_knob_and_spells_never() -> None:
    assert tuple(shown(DEFAULT)["memory"]) == MEMORY_KNOBS
    assert tuple(shown(DEFAULT)["daemon"]) == DAEMON_KNOBS
    never = memory('run_idle_after_minutes = "never"')
    assert shown(never)["memory"]["run_idle_after_minutes"] == "never"
    msgspec.json.encode(shown(never))


def test_the_sample_says_nothing_as_it_is_shipped() -> None:
    assert parse(SAMPLE.read_bytes()) == DEFAULT


def test_the_sample_holds_every_knob_at_its_default() -> None:
    knob = re.compile(r"^# (\w+) = ", re.MULTILINE)
    text = SAMPLE.read_text("utf-8")
    assert tuple(knob.findall(text)) == MEMORY_KNOBS + DAEMON_KNOBS
    opened = knob.sub(r"\1 = ", text)
    assert parse(opened.encode()) == DEFAULT
    other = knob.sub(r"\1 = -1 #", text)  # that they are read: each of them is refused
    assert len(refused(other)) == len(MEMORY_KNOBS + DAEMON_KNOBS)


# ---------------------------------------------------------------- whatever a file holds

names = st.sampled_from([*MEMORY_KNOBS, *DAEMON_KNOBS, "top_k", "decay_per_session", "max_result"])
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
toml_lines = st.one_of(
    st.sampled_from(["[memory]", "[daemon]", "[[memory]]", "[memory.x]", "[x]", "memory = 1"]),
    st.tuples(names, st.one_of(st.integers().map(str), st.floats().map(str), st.text(max_size=5))).map(" = ".join),
    st.text("[]{}=.,'\"#\\ \tab01-:TZ_\u0000é", max_size=12),
)


def outcome(read: Any, data: bytes) -> Config | None:
    """The config, or None where it was refused; problems and warnings are one line of UTF-8 each."""
    try:
        config: Config = read(data)
    except BadConfig as error:
        assert error.problems
        assert all(problem.encode() and "\n" not in problem for problem in error.problems)
        return None
    assert all(warning.encode() and "\n" not in warning for warning in config.warnings)
    assert config.memory.prune_threshold < config.memory.promote_threshold
    return config


@given(st.binary())
def test_any_bytes_are_a_config_or_refused(data: bytes) -> None:
    outcome(parse, data)
    outcome(parse_legacy, data)


@given(st.lists(toml_lines, max_size=8))
def test_any_lines_are_a_config_or_refused(lines: list[str]) -> None:
    outcome(parse, "\n".join(lines).encode())


@given(st.dictionaries(names | st.text(), json_values, max_size=6))
def test_any_block_is_a_config_or_refused(block: dict[str, Any]) -> None:
    outcome(parse_legacy, json.dumps({"memory": block}).encode())


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{key: st.floats(1e-6, 1e6) for key in POSITIVE},
            **{key: st.integers(1, 10_000) for key in COUNTS},
            "prune_threshold": st.floats(0.001, 0.7),
            "min_confidence": st.floats(0.001, 1),
            "reinforcement": st.sampled_from(CHOICES["reinforcement"]),
        },
    )
)
def test_what_is_shown_reads_back(block: dict[str, Any]) -> None:
    config = parse_legacy(json.dumps({"memory": block}).encode())
    assert config.warnings == ()
    assert {key: value for key, value in shown(config)["memory"].items() if key in block} == block
    again = parse_legacy(json.dumps(shown(config)).encode())
    assert again == config
