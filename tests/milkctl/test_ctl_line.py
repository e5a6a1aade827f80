"""The command line itself, where no daemon is asked: help, usage, completion."""

from __future__ import annotations

import json

import pytest
from milkctl.main import COMMANDS, main


class Line:
    """`milkctl` in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(words))
        told = self._capture.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, told.out, told.err


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(capsys)


def test_help_names_every_command(line: Line) -> None:
    status, text, _ = line("--help")
    assert status == 0
    for name in COMMANDS:
        assert f"  {name} " in text
    assert "..." not in text.split("State and recall")[1].split("Options, before")[0]


@pytest.mark.parametrize("name", [*COMMANDS, "run begin", "run end", "archive list", "sessions merge", "config check"])
def test_each_command_has_help(line: Line, name: str) -> None:
    status, text, _ = line(*name.split(), "-h")
    assert status == 0
    assert text.startswith(f"Usage: milkctl {name} [OPTIONS]")
    assert "Also --home --json --no-color --timeout --no-start" in text


def test_examples_are_shown_as_they_are(line: Line) -> None:
    assert 'Examples:\n  milkctl record "The user prefers uv over pip"\n' in line("record", "--help")[1]


def test_version(line: Line) -> None:
    assert line("--version")[1].startswith("milkctl 0.")


def test_nothing_at_all_shows_the_help(line: Line) -> None:
    status, out, err = line()
    assert (status, out) == (2, "")
    assert "State and recall" in err


@pytest.mark.parametrize(
    "command", ["learn", "record", "recall", "inject", "show", "explain", "edit", "link", "forget"]
)
def test_what_is_missing_is_usage(line: Line, command: str) -> None:
    status, out, err = line(command)
    assert (status, out) == (2, "")
    assert err.startswith("milkctl: Missing argument")
    assert f"Try `milkctl {command} --help`." in err


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["run"],
        ["archive"],
        ["status", "--nothing"],
        ["record", "x", "--producer", "me"],
        ["link", "aaaa", "bbbb", "likes"],
        ["--timeout", "0", "status"],
        ["--timeout", "nan", "status"],
        ["restart", "--no-start"],
        ["export", "--format", "markdown", "--json"],
    ],
)
def test_usage_errors(line: Line, words: list[str]) -> None:
    status, out, err = line(*words)
    assert status == 2
    assert err.startswith("milkctl: ")
    assert out == "" or json.loads(out)["error"]["code"] == "usage"


def test_an_error_is_json_where_json_was_asked_for(line: Line) -> None:
    status, out, err = line("record", "--json")
    assert (status, json.loads(out)) == (2, {"error": {"code": "usage", "message": "Missing argument 'TEXT'."}})
    assert err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(line: Line, shell: str) -> None:
    status, script, _ = line("completion", shell)
    assert status == 0
    assert "_MILKCTL_COMPLETE" in script
    assert json.loads(line("--json", "completion", shell)[1]) == {"shell": shell, "script": script}
