"""Many agents at once over a large memory: no error, no lost reply, and a loop that nothing holds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from agents import Agent
from running import Daemon

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from corpus import Corpus, write_home  # type: ignore[import-not-found]

Agents = Callable[..., Agent]
SIZE = 10_000
PROCESSES = 10
EACH = 5
ROUNDS = 15


def test_fifty_agents_record_recall_and_turn_over_ten_thousand_percepts(daemon: Daemon, agent: Agents) -> None:
    corpus = Corpus(SIZE)
    write_home(daemon.root, corpus, "s")
    daemon.write_config("[memory]\nsnapshot_interval_s = 0.1\n")  # the files are written meanwhile, too
    daemon.start()
    processes = [agent() for _ in range(PROCESSES)]
    for one in processes:
        for n in range(EACH):
            one.open("s", who=f"agent {n}", autostart=False)
    assert len(daemon.status().runs) == PROCESSES * EACH
    queries = [corpus.query() for _ in range(20)]
    for one in processes:
        one.say("load", kw={"rounds": ROUNDS, "queries": queries})
    told = [one.answer() for one in processes]
    status = daemon.status()
    print("longest round of three:", round(max(one["longest_s"] for one in told), 3), "s;", status.process)
    assert [error for one in told for error in one["errors"]] == []
    assert sum(one["done"] for one in told) == PROCESSES * EACH * ROUNDS * 3, "each call was answered"
    messages, faults = status.counts["messages"], status.counts["faults"]
    assert not faults and not messages.get("replies_undeliverable")
    assert status.counts["global"] + status.counts["sessions"]["s"] >= SIZE + PROCESSES * EACH * ROUNDS * 0.9
    assert len(status.runs) == PROCESSES * EACH
    assert status.journal["generation"] >= 2, "the files were written meanwhile"
    assert status.process["loop_max_ms"] <= 50, "nothing holds the loop (the wait for the disk apart)"
