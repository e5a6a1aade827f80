"""What the pages say is so: commands print what is printed there, code runs, tables are those of the code."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from milk_client import errors, wire

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
WAIT_S = 30.0


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


# ---------------------------------------------------------------- what is printed


class Place:
    """A new user's machine: an empty home, a project, the commands on the path."""

    def __init__(self, root: Path) -> None:
        self.home = root / "you"
        self.project = root / "shop"
        self.home.mkdir()
        self.project.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILK", "PYTHON"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = kept | {"HOME": str(self.home), "PATH": path}

    def run(self, *command: str, **more: str) -> str:
        """What a command prints; it must succeed, and say nothing on standard error."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), (command, done.stdout, done.stderr)
        return done.stdout

    def end(self) -> None:
        """Stop the daemon, if one runs."""
        subprocess.run(["milkctl", "stop"], env=self.environment, capture_output=True, timeout=WAIT_S, check=False)


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="milk-", dir="/tmp") as name:
        made = Place(Path(name).resolve())
        try:
            yield made
        finally:
            subprocess.run(
                ["milkctl", "stop"], env=made.environment, cwd=made.project, capture_output=True, check=False
            )


_ID = re.compile(r"\b[0-9a-f]{8}\b")
_VOLATILE = [
    (re.compile(r"\d+(\.\d)? (bytes?|KiB|MiB)"), "SIZE"),
    (re.compile(r"pid \d+"), "pid N"),
    (re.compile(r"less than a second|\b[1-9] seconds?\b( ago)?|just now"), "A MOMENT"),
    (re.compile(r"\d+\.\d s of CPU"), "N s of CPU"),
    (re.compile(r"  +"), "  "),
]


def test_the_first_five_minutes_print_what_the_readme_shows(place: Place) -> None:
    """Ids are told apart, not compared; sizes, pids and moments are any."""
    real: dict[str, str] = {}

    def same(shown: str, printed: str) -> tuple[str, str]:
        for one, other in zip(_ID.findall(shown), _ID.findall(printed), strict=False):
            real.setdefault(one, other)
        shown = _ID.sub(lambda found: real.get(found[0], found[0]), shown)
        printed = printed.replace(str(place.home), "/home/you")
        for pattern, word in _VOLATILE:
            shown, printed = pattern.sub(word, shown), pattern.sub(word, printed)
        return shown, printed

    for code in blocks(README, "python"):
        if name := re.match(r"# (\w+\.py)\n", code):
            (place.project / name[1]).write_text(code)
    commands = 0
    for block in blocks(README, "console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            command = _ID.sub(lambda found: real.get(found[0], found[0]), command)
            shown, printed = same(shown, place.run("sh", "-c", command))
            assert printed == shown, command
            commands += 1
    assert commands >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_a_page_runs(page: Path, place: Place) -> None:
    for code in blocks(page, "python"):
        place.run("milkctl", "start")
        place.run(sys.executable, "-W", "error", "-c", code, MILK_HOME=str(place.home / ".milk"))


@pytest.mark.parametrize("example", ["first_agent.py", "first_agent_async.py"])
def test_examples_run(example: str, place: Place) -> None:
    printed = place.run(sys.executable, "-W", "error", str(ROOT / "examples" / example))
    assert "recalled '" in printed
    assert "<memory>" in printed


def test_the_sitting_holds_its_claims(place: Place) -> None:
    """`make run`, which exits with 1 where one of its claims is false."""
    printed = place.run(sys.executable, "-W", "error", str(ROOT / "examples" / "sitting.py"))
    assert "global.json" in printed


# ---------------------------------------------------------------- what is named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_module_has_its_floor_on_the_page() -> None:
    rooms = (ROOT / "docs" / "how-it-works.md").read_text().partition("## Rooms")[2]
    named = set(re.findall(r"`(\w+)\.py`", rooms))
    modules = {path.stem for path in (ROOT / "milkd").rglob("*.py")} - {"__init__", "__main__"}
    client = {path.stem for path in (ROOT / "client" / "milk_client").glob("*.py")}
    assert modules - named == set()
    assert named - modules - client == set()


def test_every_knob_is_in_the_sample_config() -> None:
    from milkd.config import Config

    sample = (ROOT / "etc" / "milkd.toml").read_text()
    for section in msgspec.structs.fields(Config):
        if isinstance(section.type, type) and issubclass(section.type, msgspec.Struct):
            for knob in msgspec.structs.fields(section.type):
                assert re.search(rf"^# {knob.encode_name} = ", sample, re.MULTILINE), knob.name


# ---------------------------------------------------------------- the protocol's tables

_WORDS = {str: "str", int: "int", float: "float", bool: "bool", bytes: "bin", Any: "any"}


def type_words(kind: Any) -> str:
    """A type as the page writes it."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " ".join(f"`{value or chr(34) * 2}`" for value in sorted(args))
    if origin in (types.UnionType, Union):
        rest = [arg for arg in args if arg is not type(None)]
        assert len(rest) == 1
        return f"{type_words(rest[0])} or nil"
    if origin is list:
        return f"list of {type_words(args[0])}"
    if origin is dict:
        return f"map of {type_words(args[1])}"
    assert issubclass(kind, msgspec.Struct), kind
    return str(kind.__name__)


def fields_words(struct: type[msgspec.Struct], base: type[msgspec.Struct]) -> str:
    """The fields that a struct has beyond its base as the page writes them."""
    hints = get_type_hints(struct)
    inherited = {field.name for field in msgspec.structs.fields(base)}
    words = []
    for field in msgspec.structs.fields(struct):
        if field.name in inherited:
            continue
        word = f"`{field.encode_name}`{'' if field.required else '?'} {type_words(hints[field.name])}"
        if field.default is not msgspec.NODEFAULT and field.default:
            word += f" = {field.default!r}"
        words.append(word)
    return "; ".join(words) or "–"


def said_of(struct: type[Any]) -> str:
    """The first paragraph of its docstring as the page writes it."""
    return " ".join(inspect.cleandoc(struct.__doc__ or "").partition("\n\n")[0].replace("``", "`").split())


def table(title: str) -> dict[str, list[str]]:
    """The rows of a section's table on the protocol's page, by the word in the first cell."""
    section = PROTOCOL.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = re.split(r"^\|---.*\n", section, flags=re.MULTILINE)[1].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {row[0].replace("`", ""): row[1:] for row in rows}


def test_the_page_has_every_request() -> None:
    shown = table("Requests")
    replies = {struct.__struct_config__.tag for struct in get_args(wire.Answer)}
    expected = {}
    for struct in get_args(wire.Ask):
        name = f"{struct.__struct_config__.tag}{'*' if struct in wire.CHANGES else ''}"
        reply = shown.get(name, ["", ""])[1]
        assert reply.strip("`") in replies, name
        expected[name] = [fields_words(struct, wire.Request), reply, said_of(struct)]
    assert shown == expected


def test_the_page_has_every_reply() -> None:
    expected = {
        struct.__struct_config__.tag: [fields_words(struct, wire.Reply), said_of(struct)]
        for struct in get_args(wire.Answer)
    }
    assert table("Replies") == expected


def test_the_page_has_every_part_of_a_reply() -> None:
    shown = table("Parts of replies")
    for name, row in shown.items():
        base = wire.PerceptRecord if name == "Percept" else msgspec.Struct
        assert row == [fields_words(getattr(wire, name), base)]
    spoken = {
        struct.__name__
        for _, struct in inspect.getmembers(wire, inspect.isclass)
        if issubclass(struct, msgspec.Struct) and not issubclass(struct, (wire.Request, wire.Reply))
    }
    assert set(shown) == {name for name in spoken if not name.startswith("_")} - {"Struct", "Event"}


def test_the_page_has_every_fault() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.MilkError)]
    assert table("Faults") == {kind.code: [str(kind.exit_status), said_of(kind)] for kind in kinds}


def test_the_page_has_every_event() -> None:
    events = PROTOCOL.read_text().partition("\n## Events\n")[2].partition("\n## ")[0]
    assert re.findall(r"`([a-z]+)`", events.partition("Kinds:")[2]) == list(get_args(wire.EventKind))
