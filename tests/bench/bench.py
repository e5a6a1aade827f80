"""`make bench`: what record, get, inject and turn cost at 1,000, 10,000 and 100,000 percepts.

Everything is measured in one run, in turns, beside a bare pyzmq echo and the same echo with a write and an
fdatasync in it on the same disk: the ratios say what milkd adds, on a machine however noisy. It prints what
it measured, targets beside it; a target that is missed is reported as missed, and the exit status is 0.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import zmq
from corpus import Corpus, write_home
from milk_client import Milk

SESSION = "bench"
TARGETS = {"get": 3.0, "record": 2.0, "turn": 5.0}
"""Ratios at 100,000 percepts: get and an idle turn to the echo, record to the echo with a sync."""
COSTS = (
    ("python -c pass", [sys.executable, "-c", "pass"]),
    ("import milk_client", [sys.executable, "-c", "import milk_client"]),
)

Samples = dict[str, list[float]]


def timed(samples: list[float], call: Callable[[], object]) -> None:
    """Run once; the seconds that it took join ``samples``."""
    began = time.perf_counter()
    call()
    samples.append(time.perf_counter() - began)


class Echo:
    """The bare echo, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        endpoint = f"ipc://{folder}/echo.sock"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("echo.py")), endpoint, str(folder / "echo.bin")]
        )
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.connect(endpoint)
        self.ask(b"x")

    def ask(self, body: bytes) -> None:
        """One round trip."""
        self._socket.send(body)
        self._socket.recv()

    def close(self) -> None:
        """End the process."""
        self._socket.send(b"q")
        self._process.wait(10)
        self._socket.close(0)


def written_bytes(pid: int) -> int:
    """Bytes that a process handed to the kernel for writing, so far; 0 where the platform does not tell."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


def start(home: Path) -> subprocess.Popen[bytes]:
    """A daemon on a home, once it listens."""
    daemon = subprocess.Popen([sys.executable, "-m", "milkd", "--home", str(home), "--log-level", "warning"])
    while not (home / "run" / "endpoint").exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise SystemExit(f"the daemon ended with status {daemon.wait(0.01)}")
    return daemon


def measure(size: int, rounds: int) -> tuple[Samples, dict[str, float]]:
    """Samples in seconds by what was done, and a few single figures, at ``size`` percepts."""
    folder = Path(tempfile.mkdtemp(prefix="mb-"))
    corpus = Corpus(size)
    write_home(folder / "home", corpus, SESSION)
    began = time.perf_counter()
    daemon = start(folder / "home")
    samples: Samples = {name: [] for name in ("echo", "echo+sync", "get", "inject", "record", "turn")}
    figures: dict[str, float] = {}
    try:
        with Milk(SESSION, home=str(folder / "home"), timeout=60.0, autostart=False) as milk:
            figures["start_s"] = time.perf_counter() - began
            before = milk.status()
            assert before.counts["global"] + before.counts["sessions"][SESSION] >= size, before.counts
            echo = Echo(folder)
            body = b"e" * 300
            facts = [corpus.fact() for _ in range(rounds)]
            milk.turn()
            for n in range(rounds):
                query = corpus.query()
                timed(samples["echo"], lambda: echo.ask(body))
                timed(samples["get"], lambda query=query: milk.get(query))
                timed(samples["inject"], lambda query=query: milk.inject(query))
                timed(samples["echo+sync"], lambda: echo.ask(b"s" + body))
                timed(samples["record"], lambda n=n: milk.record(facts[n], producer="primary"))
                if n % 10 == 0:
                    milk.turn()  # the one that has the new facts to write down
                    timed(samples["turn"], milk.turn)
            wrote = written_bytes(daemon.pid)
            for _ in range(50):
                milk.record(corpus.fact(), producer="primary")
            figures["bytes_a_record"] = (written_bytes(daemon.pid) - wrote) / 50
            after = milk.status()
            figures["loop_max_ms"] = after.process["loop_max_ms"]
            figures["rss_mib"] = rss_mib(daemon.pid)
            echo.close()
        daemon.send_signal(signal.SIGTERM)
        stopped = time.perf_counter()
        daemon.wait(30)
        figures["stop_s"] = time.perf_counter() - stopped
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder)
    return samples, figures


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def percentile(values: list[float], share: float) -> float:
    """A value that ``share`` of them do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def show(size: int, samples: Samples, figures: dict[str, float]) -> None:
    """One size's table."""
    print(f"\n{size:,} percepts")
    print(f"  {'':10} {'p50':>9} {'p99':>9}   ratio of p50")
    medians = {name: statistics.median(values) for name, values in samples.items()}
    for name, values in samples.items():
        base = {"get": "echo", "inject": "echo", "turn": "echo", "record": "echo+sync"}.get(name)
        ratio = ""
        if base:
            value = medians[name] / medians[base]
            ratio = f"{value:6.2f} x {base}"
            if size == 100_000 and name in TARGETS:
                ratio += f"   target {TARGETS[name]:.0f}: {'met' if value <= TARGETS[name] else 'MISSED'}"
        p50, p99 = medians[name] * 1e3, percentile(values, 0.99) * 1e3
        print(f"  {name:10} {p50:6.3f} ms {p99:6.3f} ms   {ratio}")
    print("  " + "  ".join(f"{name} {value:,.1f}" for name, value in figures.items()))


def show_costs(home: Path) -> None:
    """What an import and a `milkctl status` cost, beside bare Python."""
    print("\nstart of a process (warm, median)")
    daemon = start(home)
    try:
        status = ["milkctl status", [sys.executable, "-m", "milkctl", "--home", str(home), "status"]]
        samples: Samples = {}
        for _ in range(15):
            for name, command in (*COSTS, status):
                run = lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
                timed(samples.setdefault(name, []), run)
    finally:
        daemon.terminate()
        daemon.wait(10)
    bare = statistics.median(samples["python -c pass"])
    for name, values in samples.items():
        value = statistics.median(values)
        print(f"  {name:20} {value * 1e3:6.1f} ms  {value / bare:5.2f} x  (+{(value - bare) * 1e3:.1f} ms)")


def main() -> None:
    """Measure the sizes asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=400)
    chosen = parser.parse_args()
    for size in chosen.sizes:
        show(size, *measure(size, chosen.rounds))
    with tempfile.TemporaryDirectory(prefix="mb-") as folder:
        show_costs(Path(folder) / "home")


if __name__ == "__main__":
    main()
