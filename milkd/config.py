"""The knobs: their meaning, defaults and ranges, and how a file becomes a Config. Pure: bytes in, Config out.

A file either is taken whole or refused whole, with every problem named at once, so that at a reload the
config in force stays in force (model, section 6).
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

NEVER = "never"
"""How a file spells ``math.inf``, where a knob allows it."""


class Fading(Struct, frozen=True):
    """Those knobs of `[memory]` that say what time makes of a strength: stored ones hold under them (M9, M11)."""

    session_half_life_days: float
    global_half_life_days: float
    prune_threshold: float
    reinforcement: Literal["restore", "add"]


class Memory(Struct, frozen=True):
    """`[memory]`: the knobs of the model, section 6. Days are running days unless a rule says otherwise."""

    session_half_life_days: float = 3.0
    """A session percept halves in as many running days (M9)."""
    global_half_life_days: float = 60.0
    """What a global percept has above ``prune_threshold`` halves in as many running days (M9)."""
    reconfirm_boost: float = 0.05
    """Strength that a restatement adds (M11)."""
    reconfirm_cap: float = 0.90
    """Strength that restatements reach at most (M11)."""
    promote_threshold: float = 0.80
    """Confirmed strength at which a session percept may become global (M17)."""
    prune_threshold: float = 0.20
    """Strength at or below which a session percept leaves, and the floor of globals (M9, M16)."""
    duplicate_threshold: float = 0.60
    """Least overlap of stems of a restatement (M14)."""
    min_confidence: float = 0.30
    """Least strength of what a query returns of a session, where the caller names none (M21)."""
    max_results: int = 5
    """Percepts that a query returns at most (M21)."""
    reinforcement: Literal["restore", "add"] = "restore"
    """From where a restatement lifts strength: from the confirmed or from the decayed one (M11)."""
    run_idle_after_minutes: float = 60.0
    """Wall-clock minutes of silence after which a run ends (M6); inf = never."""
    recency_boost: float = 0.10
    """How much of its strength a percept gains in rank when it was just updated (M8)."""
    recency_half_life_days: float = 30.0
    """That gain halves in as many wall-clock days (M8)."""
    global_archive_after_days: float = 14.0
    """Running days without use after which a global is archived (M16)."""
    global_max: int = 5000
    """Globals at most; the lowest in rank are evicted (M16)."""
    core_max: int = 200
    """Core percepts at most; further ones are refused (M20)."""
    percept_inject_max: int = 20
    """Percepts in an injected block at most (M22)."""
    percept_inject_max_bytes: int = 4096
    """UTF-8 bytes of content in an injected block at most (M22)."""
    max_content_bytes: int = 2000
    """UTF-8 bytes of one content at most (M1)."""
    archive_keep_days: float = 0.0
    """Wall-clock days after which an archive entry is dropped (M4); 0 = never."""
    policy: Literal["running-time"] = "running-time"
    """What decides on strength; the only one of this version."""
    snapshot_interval_s: float = 30.0
    """Seconds within which the JSON files follow a change (M16)."""

    @property
    def fading(self) -> Fading:
        """The knobs under which strengths fade."""
        return Fading(self.session_half_life_days, self.global_half_life_days, self.prune_threshold, self.reinforcement)

    def under(self, fading: Fading) -> Memory:
        """The same knobs but those under which strengths fade."""
        return replace(self, **asdict(fading))


class Daemon(Struct, frozen=True):
    """`[daemon]`: the knobs of the process that holds the memory."""

    max_message_bytes: int = 1 << 20
    """Bytes of one request at most."""
    in_flight_max: int = 64
    """Requests of one client that may wait for an answer."""
    sweep_s: float = 1.0
    """Seconds between two looks at the processes of live runs; a death costs at most one (M6)."""
    checkpoint_s: float = 10.0
    """Seconds between two records of the running clocks while a run is live (M7)."""
    journal_max_mb: int = 16
    """MiB of the journal from which on a snapshot is made, so that it can begin anew."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe line that is logged."""
    log_format: Literal["text", "json"] = "text"
    """How a line of the log looks."""
    watch: Literal["auto", "poll", "off"] = "auto"
    """How edits of the files by hand are noticed."""


class Config(Struct, frozen=True):
    """All knobs, and what the file said that a person should hear of."""

    memory: Memory = Memory()
    daemon: Daemon = Daemon()
    warnings: tuple[str, ...] = ()


DEFAULT = Config()


class BadConfig(Exception):
    """The file is refused whole. Each of ``problems`` names file, key, value and allowed range."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


# ---------------------------------------------------------------- ranges


class _Number(Struct, frozen=True):
    """A number above 0, from ``low`` to ``high``. 0 is the default, ``zero`` says what that means."""

    low: float = 0.0
    high: float = math.inf
    whole: bool = False
    never: bool = False
    zero: str = ""

    def allowed(self) -> str:
        """The range in words."""
        low = f"from {self.low:.15g}" if self.low else "above 0"
        high = f" to {self.high:.15g}" if self.high < math.inf else ""
        never = f' or "{NEVER}"' if self.never else ""
        zero = f" or 0 ({self.zero})" if self.zero else ""
        return f"a {'whole ' if self.whole else ''}number {low}{high}{never}{zero}"

    def read(self, raw: object) -> float | int | None:
        """The value, or None where it is not allowed."""
        if self.never and raw == NEVER:
            return math.inf
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            return None
        try:
            value = float(raw)
        except OverflowError:
            return None
        if not math.isfinite(value) or value <= 0 or not self.low <= value <= self.high:
            return None
        if self.whole:  # JSON knows no whole numbers: 5.0 and 5e3 are some
            return int(raw) if value.is_integer() else None
        return value


class _Choice(Struct, frozen=True):
    """One of a few words; ``elsewhere`` are known ones that this version does not have."""

    options: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()

    def allowed(self) -> str:
        """The words, and which are missing."""
        absent = "".join(f' ("{word}" is not in this version)' for word in self.elsewhere)
        return " or ".join(f'"{word}"' for word in self.options) + absent

    def read(self, raw: object) -> str | None:
        """The word, or None where it is not allowed."""
        return raw if isinstance(raw, str) and raw in self.options else None


_POSITIVE = _Number()
_SHARE = _Number(high=1.0)
_COUNT = _Number(low=1, high=1_000_000_000, whole=True)

_MEMORY: dict[str, _Number | _Choice] = {
    "session_half_life_days": _POSITIVE,
    "global_half_life_days": _POSITIVE,
    "reconfirm_boost": _SHARE,
    "reconfirm_cap": _SHARE,
    "promote_threshold": _SHARE,
    "prune_threshold": _SHARE,
    "duplicate_threshold": _SHARE,
    "min_confidence": _SHARE,
    "max_results": _COUNT,
    "reinforcement": _Choice(("restore", "add")),
    "run_idle_after_minutes": _Number(never=True),
    "recency_boost": _POSITIVE,
    "recency_half_life_days": _POSITIVE,
    "global_archive_after_days": _POSITIVE,
    "global_max": _COUNT,
    "core_max": _COUNT,
    "percept_inject_max": _COUNT,
    "percept_inject_max_bytes": _COUNT,
    "max_content_bytes": _COUNT,
    "archive_keep_days": _Number(zero="never dropped"),
    "policy": _Choice(("running-time",), elsewhere=("last-access",)),
    "snapshot_interval_s": _POSITIVE,
}
_DAEMON: dict[str, _Number | _Choice] = {
    "max_message_bytes": _Number(low=4096, high=1 << 26, whole=True),
    "in_flight_max": _COUNT,
    "sweep_s": _Number(low=0.01, high=1.0),  # M6: at least every second
    "checkpoint_s": _Number(low=0.1, high=15.0),  # M7: a crash loses 15 s at most
    "journal_max_mb": _Number(low=1, high=1 << 20, whole=True),
    "log_level": _Choice(("debug", "info", "warning", "error")),
    "log_format": _Choice(("text", "json")),
    "watch": _Choice(("auto", "poll", "off")),
}
_TABLES = {"memory": _MEMORY, "daemon": _DAEMON}

_RETIRED = ("decay_per_session", "global_decay_per_session")
_OTHER_POLICY = ("decay_half_life_hours", "consolidate_threshold", "top_k")
"""Knobs of the policy last-access (section 7)."""

# ---------------------------------------------------------------- parsing


class _Findings(Struct):
    """What one file is told off for, collected so that all of it can be said at once."""

    name: str
    problems: list[str] = []
    warnings: list[str] = []
    refused: set[str] = set()

    def problem(self, text: str) -> None:
        """What the file is refused for."""
        self.problems.append(f"{self.name}: {text}")

    def warn(self, text: str) -> None:
        """Something that a person should hear of."""
        self.warnings.append(f"{self.name}: {text}")

    def outside(self, key: str, raw: object, allowed: str) -> None:
        """A value outside its meaning."""
        self.refused.add(key)
        self.problem(f"{key} = {_spelt(raw)}: allowed: {allowed}")


def parse(data: bytes, *, name: str = "milkd.toml") -> Config:
    """The config of a `milkd.toml`: UTF-8, with or without a byte order mark. Raises BadConfig, nothing else.

    ``name`` stands before every problem and warning.
    """
    text = _decoded(data, name)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # the former is TOMLDecodeError, and numbers of any length
        raise BadConfig((f"{name}: not TOML: {_reason(error)}",)) from error
    findings = _Findings(name)
    for key in document:
        if key not in _TABLES:
            findings.warn(f"{_spelt_key(key)}: unknown{_hint(key, _TABLES, '[{}]')}; ignored")
    return _config(document, findings)


def parse_legacy(data: bytes, *, name: str = "config.json") -> Config:
    """The config in the ``memory`` block of an existing `config.json`; what stands beside it is not ours.

    Raises BadConfig, nothing else.
    """
    text = _decoded(data, name)
    try:
        document = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError) as error:
        raise BadConfig((f"{name}: not JSON: {_reason(error)}",)) from error
    if not isinstance(document, _Object):
        raise BadConfig((f"{name}: not a JSON object",))
    findings = _Findings(name)
    memory = document.get("memory", {})
    if "memory" in document.doubles:
        findings.problem("memory: occurs twice")
    elif isinstance(memory, _Object):
        for key in memory.doubles:
            findings.problem(f"memory.{_spelt_key(key)}: occurs twice")
        memory = {key: value for key, value in memory.items() if value is not None}
    return _config({} if memory is None else {"memory": memory}, findings)


def shown(config: Config) -> dict[str, dict[str, Any]]:
    """Every knob in force by table and name, as a file would spell it ("never" for inf)."""
    found = {"memory": msgspec.structs.asdict(config.memory), "daemon": msgspec.structs.asdict(config.daemon)}
    return {
        table: {key: NEVER if value == math.inf else value for key, value in knobs.items()}
        for table, knobs in found.items()
    }


class _Object(dict[str, Any]):
    """A JSON object that knows which of its keys occurred twice: the last would win without a word."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.doubles = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise BadConfig((f"{name}: not UTF-8: line {line}, byte 0x{byte:02x}",)) from error


def _reason(error: Exception) -> str:
    """The parser's words, which name line and column."""
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


def _config(document: dict[str, Any], findings: _Findings) -> Config:
    """The tables of a document as a Config; raises BadConfig with all problems."""
    memory = Memory(**_read("memory", document, findings))
    daemon = Daemon(**_read("daemon", document, findings))
    _check_together(memory, daemon, findings)
    if findings.problems:
        raise BadConfig(tuple(findings.problems))
    return Config(memory, daemon, tuple(findings.warnings))


def _read(table: str, document: dict[str, Any], findings: _Findings) -> dict[str, Any]:
    """The values of one table that are neither missing nor wrong; the rest goes to ``findings``."""
    entries = document.get(table, {})
    if not isinstance(entries, dict):
        findings.outside(table, entries, "a table of knobs")
        return {}
    values: dict[str, Any] = {}
    rules = _TABLES[table]
    for key, raw in entries.items():
        if key not in rules:
            continue
        if _is_zero(raw):
            default = getattr(getattr(DEFAULT, table), key)
            if default != raw:
                findings.warn(f"{table}.{key} = {_spelt(raw)}: stands for the default, {_spelt(default)}")
            continue
        value = rules[key].read(raw)
        if value is None:
            findings.outside(f"{table}.{key}", raw, rules[key].allowed())
        else:
            values[key] = value
    for warning in _strangers(table, [key for key in entries if key not in rules]):
        findings.warn(warning)
    return values


def _strangers(table: str, keys: list[str]) -> Iterator[str]:
    """A warning for each key that is no knob of the table; the retired ones share one."""
    retired = [key for key in keys if table == "memory" and key in _RETIRED]
    if retired:
        names = " and ".join(f"memory.{key}" for key in retired)
        yield f"{names}: retired and ignored; see session_half_life_days and global_half_life_days"
    for key in keys:
        if key in retired:
            continue
        if table == "memory" and key in _OTHER_POLICY:
            yield f'memory.{key}: not used by the policy "running-time"; ignored'
        else:
            yield f"{table}.{_spelt_key(key)}: unknown{_hint(key, _TABLES[table])}; ignored"


def _check_together(memory: Memory, daemon: Daemon, findings: _Findings) -> None:
    """Ranges that hang on another knob; not asked where that one or this one is refused by itself."""
    prune, promote = memory.prune_threshold, memory.promote_threshold
    if prune >= promote and not {"memory.prune_threshold", "memory.promote_threshold"} & findings.refused:
        allowed = f"above 0 and below memory.promote_threshold ({promote:.15g})"
        findings.outside("memory.prune_threshold", prune, allowed)
    content, message = memory.max_content_bytes, daemon.max_message_bytes
    if content * 2 > message and "daemon.max_message_bytes" not in findings.refused:
        allowed = f"from 1 to half of daemon.max_message_bytes ({message})"
        findings.outside("memory.max_content_bytes", content, allowed)


# ---------------------------------------------------------------- words for people


def _is_zero(raw: object) -> bool:
    """Whether a value stands for its default: 0 or an empty word (section 6)."""
    return raw == "" or (isinstance(raw, int | float) and not isinstance(raw, bool) and raw == 0)


def _hint(key: str, known: Iterable[str], shape: str = "{}") -> str:
    """Where an unknown key may belong: to another table, to the closest of ``known``, or nowhere."""
    for table, rules in _TABLES.items():
        if key in rules:
            return f" here, it belongs to [{table}]"
    near = difflib.get_close_matches(key[:100], known, n=1)
    return f", did you mean {shape.format(near[0])}?" if near else ""


def _spelt(raw: object) -> str:
    """A value as the file has it, roughly, and not longer than a line."""
    if isinstance(raw, int) and raw.bit_length() > 200:  # str() of a really long one is an error
        return f"a number of {raw.bit_length()} bits"
    if isinstance(raw, list | dict):  # may hold anything, at any depth
        return "a list" if isinstance(raw, list) else "a table"
    text = json.dumps(raw, ensure_ascii=False) if isinstance(raw, str | bool) else str(raw)
    text = text if len(text) <= 60 else text[:57] + "..."
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # JSON can spell half a character


def _spelt_key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum() and len(key) <= 60
    return key if plain else _spelt(key)
