"""The config of a running daemon: bad ones refused at start and at reload, by SIGHUP and by a look at the file."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from milk_client import wire
from milk_client.errors import TooLarge
from milk_client.events import Events
from running import Daemon, until

BAD = {
    "memory.prune_threshold": "[memory]\nprune_threshold = 0.9\n",
    "memory.global_max": "[memory]\nglobal_max = -1\n",
    "memory.session_half_life_days": "[memory]\nsession_half_life_days = nan\n",
    "memory.promote_threshold": "[memory]\npromote_threshold = 1.5\n",
    "memory.policy": '[memory]\npolicy = "by-mood"\n',
    "memory.max_results": '[memory]\nmax_results = "five"\n',
    "daemon.sweep_s": "[daemon]\nsweep_s = 60\n",
    "daemon.checkpoint_s": "[daemon]\ncheckpoint_s = 16\n",
    "milkd.toml": "[memory\n",
}


def results(daemon: Daemon) -> object:
    """One knob that is in force."""
    with daemon.tool() as tool:
        return tool.config().values["memory"]["max_results"]


@pytest.mark.parametrize("named", BAD)
def test_a_bad_config_ends_the_start_with_status_2_and_names_the_key(daemon: Daemon, named: str) -> None:
    daemon.write_config(BAD[named])
    status, told = daemon.run()
    assert status == 2
    assert named in told and "Traceback" not in told
    assert not daemon.memory.exists(), "nothing was made"


def test_those_who_watch_hear_of_the_config_and_of_health(daemon: Daemon) -> None:
    daemon.write_config("[memory]\nmax_results = 3\n")
    daemon.start()
    with daemon.tool() as tool, Events(tool.welcome.events) as events:

        def heard_something() -> bool:
            tool.record("A subscription needs a moment to reach the daemon")
            return events.next(0.05) is not None

        until(heard_something)

        def hear(kind: str) -> str:
            return until(lambda: next((e.detail for e in iter(lambda: events.next(0.1), None) if e.kind == kind), ""))

        daemon.write_config("[memory]\nmax_results = -3\n")
        assert "max_results" in hear("config")
        daemon.write_config("[memory]\nmax_results = 3\n")
        assert "milkd.toml" in hear("config")
        (daemon.memory / "global.json").write_text("{not json")
        assert "global.json" in hear("health")


def test_a_config_file_that_is_named_and_not_there_is_told(daemon: Daemon, base: Path) -> None:
    status, told = daemon.run("--config", str(base / "none.toml"))
    assert status == 2 and "none.toml" in told


def test_sighup_reads_the_config_anew_and_a_bad_one_leaves_the_old_in_force(daemon: Daemon) -> None:
    off = '[daemon]\nwatch = "off"\n[memory]\n'
    daemon.write_config(off + "max_results = 3\n")
    daemon.start()
    assert results(daemon) == 3
    daemon.write_config(off + "max_results = 4\n")
    daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: results(daemon) == 4)
    daemon.write_config(off + "max_results = 6\nprune_threshold = 0.95\n")
    daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: any("prune_threshold" in line for line in daemon.status().health), what="status says why")
    assert results(daemon) == 4
    with daemon.tool() as tool:
        assert "prune_threshold" in tool.config().rejected
        for n in range(7):
            tool.record(f"Bottle number {n} holds liquor b{n}")
        assert len(tool.get("bottle")) == 4
    daemon.write_config(off + "max_results = 6\n")
    daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: results(daemon) == 6)
    assert not daemon.status().health
    with daemon.tool() as tool:
        assert len(tool.get("bottle")) == 6


@pytest.mark.parametrize("watch", ["auto", "poll"])
def test_a_change_of_the_file_is_noticed_without_a_signal(daemon: Daemon, watch: str) -> None:
    how = f'[daemon]\nwatch = "{watch}"\n[memory]\n'
    daemon.write_config(how + "max_results = 3\n")
    daemon.start()
    for n in (7, 8):  # twice: a watch on a file goes silent when the file is replaced
        fresh = daemon.root / "fresh.toml"
        fresh.write_text(how + f"max_results = {n}\n")
        os.utime(fresh, (fresh.stat().st_mtime + n,) * 2)  # polling sees whole seconds only
        fresh.rename(daemon.root / "milkd.toml")
        until(lambda n=n: results(daemon) == n)
    path = daemon.root / "milkd.toml"
    daemon.write_config(how + "max_results = -2\n")  # and written in place
    os.utime(path, (path.stat().st_mtime + 20,) * 2)
    until(lambda: any("max_results" in line for line in daemon.status().health))
    assert results(daemon) == 8
    path.unlink()
    until(lambda: results(daemon) == 5, what="without a file the defaults hold")
    assert not daemon.status().health


def test_a_config_given_by_name_elsewhere_is_watched_there(daemon: Daemon, base: Path) -> None:
    folder = base / "etc"
    folder.mkdir()
    path = folder / "mine.toml"
    path.write_text("[memory]\nmax_results = 2\n")
    daemon.start("--config", str(path))
    assert results(daemon) == 2
    path.write_text("[memory]\nmax_results = 9\n")
    until(lambda: results(daemon) == 9)


def test_the_memory_block_of_an_existing_config_json_is_honoured_and_the_file_left_alone(daemon: Daemon) -> None:
    text = json.dumps(
        {
            "model": "some-model",
            "memory": {"decay_per_session": 0.9, "global_decay_per_session": 0.99, "max_results": 2},
            "tools": ["shell"],
        }
    )
    daemon.root.mkdir(mode=0o700)
    (daemon.root / "config.json").write_text(text)
    daemon.start()
    assert results(daemon) == 2
    with daemon.tool() as tool:
        found = tool.config()
        assert found.source.endswith("config.json")
        (warning,) = found.warnings
    assert "decay_per_session" in warning and "global_decay_per_session" in warning
    assert (daemon.root / "config.json").read_text() == text
    daemon.write_config("[memory]\nmax_results = 11\n")
    until(lambda: results(daemon) == 11, what="milkd's own config goes first")


def test_other_knobs_hold_from_now_on_and_change_nothing_that_was(daemon: Daemon) -> None:
    daemon.write_config("[memory]\nreconfirm_boost = 0.05\n")
    daemon.start()
    with daemon.tool() as tool:
        first = tool.record("Tests run on Fridays", producer="primary")
        daemon.write_config("[memory]\nreconfirm_boost = 0.12\n")
        until(lambda: tool.config().values["memory"]["reconfirm_boost"] == 0.12)
        assert tool.show(first).percept.w_confirmed == pytest.approx(0.7, abs=1e-12)
        assert tool.record("Tests run on Fridays").percept.w_confirmed >= 0.82 - 1e-12


def test_a_config_behind_a_link_is_watched_where_it_lies(daemon: Daemon, base: Path) -> None:
    real = base / "dotfiles" / "milkd.toml"
    real.parent.mkdir()
    real.write_text("[memory]\nmax_results = 3\n")
    daemon.root.mkdir(mode=0o700)
    (daemon.root / "milkd.toml").symlink_to(real)
    daemon.start()
    assert results(daemon) == 3
    real.write_text("[memory]\nmax_results = 4\n")
    until(lambda: results(daemon) == 4)


def test_a_reload_changes_the_log_the_watch_and_the_limit_of_messages_too(daemon: Daemon) -> None:
    daemon.write_config('[daemon]\nwatch = "off"\nlog_level = "error"\n')
    daemon.start()
    daemon.write_config(
        '[daemon]\nwatch = "auto"\nlog_level = "debug"\nlog_format = "json"\nmax_message_bytes = 4096\n'
    )
    daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]

    def limit() -> int:
        with daemon.tool() as tool:
            return int(tool.config().values["daemon"]["max_message_bytes"])

    until(lambda: limit() == 4096)
    with daemon.tool() as tool, pytest.raises(TooLarge, match="4096"):
        tool.get("bread " * 800)
    with daemon.tool() as tool:
        tool.record("The user likes rye bread")
    daemon.write_config("[daemon]\n")
    until(lambda: limit() == wire.MAX_MESSAGE_BYTES, what="it is watched now, without a signal")
    lines = [json.loads(line) for line in daemon.told().splitlines() if line.startswith("{")]
    assert any(line["level"] == "debug" for line in lines), lines
