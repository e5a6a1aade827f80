"""Homes, endpoint files and the sessions of projects."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from milk_client import Invalid, paths

NOBODY = "/nonexistent-home"


def repository(path: Path) -> Path:
    """What ``git init`` leaves that matters here."""
    git = path / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "refs").mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    return git


def worktree(git: Path, path: Path, name: str) -> None:
    """What ``git worktree add`` leaves."""
    own = git / "worktrees" / name
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/other\n")
    (own / "commondir").write_text("../..\n")
    path.mkdir(parents=True)
    (path / ".git").write_text(f"gitdir: {own}\n")


def session(cwd: Path, env: dict[str, str] | None = None) -> str:
    return paths.derive_session(cwd, env or {}, NOBODY)


def test_the_home_is_the_argument_then_the_environment_then_dot_milk(tmp_path: Path) -> None:
    env = {"MILK_HOME": str(tmp_path / "env")}
    assert paths.find_home(tmp_path / "arg", env).root == tmp_path / "arg"
    assert paths.find_home(None, env).root == tmp_path / "env"
    assert paths.find_home(None, {"MILK_HOME": ""}).root == Path("~/.milk").expanduser().resolve()
    assert paths.find_home("~/x", {}).root == Path("~/x").expanduser().resolve()


@pytest.mark.parametrize("bad", ["~nobody-of-that-name/x", "a\0b"])
def test_a_home_that_cannot_be(bad: str) -> None:
    with pytest.raises(Invalid) as caught:
        paths.find_home(bad, {})
    assert caught.value.field == "home"


def test_a_link_to_a_home_is_the_same_home(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert paths.find_home(tmp_path / "link", {}) == paths.find_home(tmp_path / "real", {})


def test_what_lies_in_a_home() -> None:
    home = paths.home_at(Path("/h"), {}, uid=7)
    assert [home.memory, home.run, home.socket, home.events, home.lock, home.endpoint, home.log] == [
        Path("/h/memory"),
        Path("/h/run"),
        Path("/h/run/milkd.sock"),
        Path("/h/run/events.sock"),
        Path("/h/run/lock"),
        Path("/h/run/endpoint"),
        Path("/h/run/milkd.log"),
    ]
    assert (home.config, home.legacy_config) == (Path("/h/milkd.toml"), Path("/h/config.json"))


@pytest.mark.parametrize(
    ("env", "parent"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7"),
        ({"XDG_RUNTIME_DIR": "relative"}, "/tmp"),
        ({"XDG_RUNTIME_DIR": "/" + "x" * 100}, "/tmp"),
        ({}, "/tmp"),
    ],
)
def test_a_long_home_has_its_sockets_in_a_short_place(env: dict[str, str], parent: str) -> None:
    long = Path("/" + "ü" * 50)
    home = paths.home_at(long, env, uid=7)
    assert home.socket.parent.parent == Path(parent)
    assert home.socket.parent.name.startswith("milkd-7-")
    assert len(os.fsencode(home.events)) <= paths.LONGEST_SOCKET_PATH
    assert home.run == long / "run"
    assert home.socket != paths.home_at(Path("/" + "ä" * 50), env, uid=7).socket


def test_the_last_byte_that_fits() -> None:
    fits = Path("/" + "x" * (paths.LONGEST_SOCKET_PATH - len("//run/events.sock")))
    assert paths.home_at(fits, {}, uid=7).sockets == fits / "run"
    assert paths.home_at(Path(f"{fits}x"), {}, uid=7).sockets != Path(f"{fits}x") / "run"


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1", b"\xff\xfe", b'{"endpoint": 3}'])
def test_an_endpoint_file_that_says_nothing(home: Path, content: bytes | None) -> None:
    where = paths.find_home(home, {})
    if content is not None:
        where.endpoint.write_bytes(content)
    assert paths.read_endpoint(where) is None


def test_an_endpoint_file_of_a_newer_daemon_is_read(home: Path) -> None:
    where = paths.find_home(home, {})
    told = paths.Endpoint(endpoint="ipc:///s", events="ipc:///e", pid=3, host="h", boot_id="b", version="9", protocol=1)
    where.endpoint.write_bytes(msgspec.json.encode(msgspec.to_builtins(told) | {"more": 1}))
    assert paths.read_endpoint(where) == told


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 128, "globally", "_", "-"])
def test_names_a_session_may_have(name: str) -> None:
    assert paths.check_session(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 129, ".a", "a/b", "ü", "a b", "global", "Global", "ARCHIVE", "state", "..", "a\n", "\ud800"],
)
def test_names_a_session_may_not_have(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        paths.check_session(name)
    assert caught.value.field == "session"


def test_the_environment_names_the_session(tmp_path: Path) -> None:
    assert session(tmp_path, {"MILK_SESSION": "mine"}) == "mine"
    with pytest.raises(Invalid):
        session(tmp_path, {"MILK_SESSION": "no/no"})


def test_the_root_and_the_home_directory_are_no_projects(tmp_path: Path) -> None:
    assert paths.derive_session("/", {}, NOBODY) == "default"
    (tmp_path / "link").symlink_to(tmp_path)
    assert paths.derive_session(tmp_path, {}, tmp_path / "link") == "default"
    repository(tmp_path)  # settings kept under git make no project of a home either
    assert paths.derive_session(tmp_path, {}, tmp_path) == "default"


def test_two_projects_of_one_name_stay_apart_and_a_link_does_not_split_one(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "app").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "app")
    one, two = session(tmp_path / "a" / "app"), session(tmp_path / "b" / "app")
    assert one != two
    assert one.startswith("app-")
    assert len(one) == len("app-") + 8
    assert session(tmp_path / "link") == one


def test_a_folder_of_a_repository_and_its_worktrees_share_one_session(tmp_path: Path) -> None:
    git = repository(tmp_path / "app")
    worktree(git, tmp_path / "elsewhere" / "wt", "wt")
    (tmp_path / "app" / "src" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "wt" / "src").mkdir()
    named = session(tmp_path / "app")
    assert named.startswith("app-")
    for folder in ("app/src/deep", "app/.git", "elsewhere/wt", "elsewhere/wt/src"):
        assert session(tmp_path / folder) == named


def test_a_worktree_whose_repository_is_out_of_reach_keeps_its_session(tmp_path: Path) -> None:
    git = repository(tmp_path / "app")
    worktree(git, tmp_path / "wt", "wt")
    named = session(tmp_path / "wt")
    (tmp_path / "app").rename(tmp_path / "gone")
    assert session(tmp_path / "wt") == named


def test_a_relative_gitdir_counts_from_its_file(tmp_path: Path) -> None:
    git = repository(tmp_path / "app")
    worktree(git, tmp_path / "wt", "wt")
    (tmp_path / "wt" / ".git").write_text("gitdir: ../app/.git/worktrees/wt\n")
    assert session(tmp_path / "wt") == session(tmp_path / "app")


def test_a_submodule_is_a_project_of_its_own_and_so_are_its_worktrees(tmp_path: Path) -> None:
    git = repository(tmp_path / "app")
    modules = git / "modules"
    repository(modules).rename(modules / "lib")
    (tmp_path / "app" / "lib").mkdir()
    (tmp_path / "app" / "lib" / ".git").write_text("gitdir: ../.git/modules/lib\n")
    worktree(modules / "lib", tmp_path / "lib-wt", "lib-wt")
    named = session(tmp_path / "app" / "lib")
    assert named.startswith("lib-")
    assert named == session(tmp_path / "lib-wt")


@pytest.mark.parametrize(("bare", "stem"), [("app.git", "app-"), ("app/.bare", "app-")])
def test_the_worktrees_of_a_bare_repository_share_one_session(tmp_path: Path, bare: str, stem: str) -> None:
    repository(tmp_path / "new").rename(tmp_path / "repo")
    (tmp_path / bare).parent.mkdir(exist_ok=True)
    (tmp_path / "repo").rename(tmp_path / bare)
    worktree(tmp_path / bare, tmp_path / "one", "one")
    worktree(tmp_path / bare, tmp_path / "two", "two")
    assert session(tmp_path / "one") == session(tmp_path / "two") == session(tmp_path / bare)
    assert session(tmp_path / "one").startswith(stem)


def test_a_stray_dot_git_makes_no_repository(tmp_path: Path) -> None:
    git = repository(tmp_path / "app")
    inner = tmp_path / "app" / "inner"
    (inner / ".git").mkdir(parents=True)
    assert session(inner) == session(git.parent)


@pytest.mark.parametrize("name", ["naïve app", ".hidden", "...", "x" * 200, "日本", "GLOBAL"])
def test_any_directory_gives_a_name_that_a_session_may_have(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert paths.check_session(session(tmp_path / name))


def test_an_empty_home_variable_is_no_place_to_remember_in() -> None:
    with pytest.raises(Invalid, match="HOME is empty"):
        paths.find_home(None, {"HOME": ""})
    assert paths.find_home("/somewhere/else", {"HOME": ""}).root == Path("/somewhere/else")
