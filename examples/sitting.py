"""A sitting of several agents on one living memory: what `make run` plays, in about half a minute.

A daemon on a throw-away home, four agent processes of two projects, a crash of an agent and of the daemon,
and a second day. Half-lives are scaled from days to seconds, so that fading can be watched. It prints what
is remembered, faded, corroborated, promoted and deferred, and checks each of its own claims; the exit status
is 1 if one of them is false.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from milk_client import Milk, MilkError
from milk_client import Tool as Onlooker

HALF_LIFE_S = 10.0
CONFIG = f"""\
# For this sitting only: days become seconds.
[memory]
session_half_life_days = {HALF_LIFE_S / 86400!r}  # {HALF_LIFE_S:g} s instead of 3 days
global_half_life_days = {200 / 86400!r}  # 200 s instead of 60 days
global_archive_after_days = {120 / 86400!r}  # 120 s instead of 14 days
"""

TESTS = "The tests of orchard need the postgres container"
UV = "The user prefers uv over pip"
FLAKY = "The login test is flaky today"
TUESDAY = "Harbour is deployed on Tuesday morning after review"
THURSDAY = "Harbour is deployed on Thursday morning after review"
QUEUE = "The queue of harbour drains before each deploy"

# ---------------------------------------------------------------- an agent, as a process of its own


def agent() -> None:
    """Do what standard input asks for, a JSON line each, and answer in kind, as long as the conductor lives."""
    with Milk() as milk:  # no ids, no settings: the project is the folder it was started in
        print(json.dumps(milk.session), flush=True)
        for line in sys.stdin:
            verb, args, named = json.loads(line)
            try:
                answer = getattr(milk, verb)(*args, **named)
            except MilkError as error:
                answer = {"error": str(error)}
            print(msgspec.json.encode(answer).decode(), flush=True)


class Agent:
    """The conductor's end of an agent process."""

    def __init__(self, name: str, home: Path, project: Path) -> None:
        self.name = name
        environment = {**os.environ, "MILK_HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=project,
            env=environment,
        )
        self.session: str = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, verb: str, *args: Any, **named: Any) -> Any:
        """Ask for one call and wait for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([verb, args, named]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def record(self, content: str, **named: Any) -> Any:
        """State something, and say so on the screen."""
        answer = self.do("record", content, **named)
        percept = answer["percept"]
        near = "".join(f"; near miss ({n['reason']}): {n['percept']['content']!r}" for n in answer.get("near", []))
        say(
            f"{self.name} says {content!r}: {answer['outcome']}, confirmed {percept['w_confirmed']:.2f}, "
            f"evidence {percept.get('evidence', 0)}{near}"
        )
        return answer

    def turn(self) -> Any:
        """The turn signal, and what the pass did."""
        report = self.do("turn")
        why = ", ".join(f"{n} for want of {what}" for what, n in report["deferred_for"].items())
        why = why.replace("want of contradiction", "a contradiction")
        say(
            f"{self.name} ends its turn: {report['promoted']} promoted, {report['promotion_deferred']} deferred"
            f"{f' ({why})' if why else ''}, {report['pruned']} faded away"
        )
        return report

    def leave(self) -> None:
        """Close its input: it detaches and ends."""
        self.process.communicate(timeout=10)

    def die(self) -> None:
        """No goodbye."""
        self.process.kill()
        self.process.communicate(timeout=10)


# ---------------------------------------------------------------- the conductor

failures: list[str] = []


def heading(text: str) -> None:
    """A part begins."""
    print(f"\n== {text}", flush=True)


def say(text: str) -> None:
    """A line of the story."""
    print(f"   {text}", flush=True)


def claim(holds: bool, text: str) -> None:
    """Something that must be true; remembered if it is not."""
    print(f"   [{'ok' if holds else 'FALSE'}] {text}", flush=True)
    if not holds:
        failures.append(text)


def wait(seconds: float) -> None:
    """Let real time pass: this is a play about time."""
    threading.Event().wait(seconds)


class Stage:
    """A home, the daemon on it, and somebody who only looks."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir(mode=0o700)
        (self.home / "milkd.toml").write_text(CONFIG, encoding="utf-8")
        self.projects = {name: root / name for name in ("orchard", "harbour")}
        for folder in self.projects.values():
            folder.mkdir()
        self.daemon = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the daemon and wait until it answers."""
        command = [sys.executable, "-m", "milkd", "--home", str(self.home), "--log-level", "error"]
        daemon = subprocess.Popen(command)
        deadline = time.monotonic() + 20
        while True:
            try:
                with self.look() as look:
                    look.status()
                return daemon
            except MilkError:
                if time.monotonic() > deadline or daemon.poll() is not None:
                    raise
                wait(0.05)

    def crash(self) -> None:
        """kill -9, and another one in its place."""
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = self.start()

    def look(self, session: str | None = None) -> Onlooker:
        """A tool: it starts no run and moves no clock."""
        return Onlooker(session, home=str(self.home), autostart=False)

    def agent(self, name: str, project: str) -> Agent:
        """An agent of a project, attached."""
        return Agent(name, self.home, self.projects[project])

    def status(self) -> Any:
        """What `milkctl status` shows."""
        with self.look() as look:
            return look.status()

    def clock(self, session: str = "") -> float:
        """Running seconds: of a session, or global."""
        clocks = self.status().clocks
        return float(clocks["sessions"][session] if session else clocks["global_s"])

    def find(self, content: str, session: str) -> Any:
        """A percept that lives in a session or globally, by its content; None if there is none."""
        with self.look(session) as look:
            return next((p for p in look.list() if p.content == content), None)

    def archived(self, content: str, session: str) -> str:
        """Why a percept was archived; "" if it was not."""
        with self.look(session) as look:
            return next((e.reason for e in look.archive() if e.percept.content == content), "")

    def until(self, what: str, holds: Any, seconds: float = 10.0) -> None:
        """Ask until it is so, with a deadline; a claim."""
        deadline = time.monotonic() + seconds
        while not holds() and time.monotonic() < deadline:
            wait(0.1)
        claim(holds(), what)


def first_day(stage: Stage) -> None:
    """Three agents side by side, one of them killed."""
    heading("Day one: ada and bob work on orchard, cleo on harbour, at the same time")
    began = time.monotonic()
    ada, bob, cleo = stage.agent("ada", "orchard"), stage.agent("bob", "orchard"), stage.agent("cleo", "harbour")
    ada.record(UV, producer="user")
    ada.record(TESTS)
    ada.record(FLAKY)
    first = bob.record(TESTS + ".")
    claim(first["outcome"] == "reinforced", "bob's words restate ada's: nothing is stored twice")
    for _ in range(4):
        last = cleo.record(QUEUE)
    claim(last["percept"]["evidence"] == 1, "said again and again in one sitting: evidence 1")
    wrong = cleo.record(TUESDAY)
    right = cleo.record(THURSDAY)
    claim(right["outcome"] == "new" and bool(right["near"]), "a correction is no restatement of what it corrects")
    say("cleo links the two: they contradict each other")
    cleo.do("link", right["percept"]["id"], wrong["percept"]["id"], "contradicts")

    report = ada.turn()
    claim(report["promoted"] == 1, "what the user said is global after the first turn")
    report = cleo.turn()
    claim(
        report["deferred_for"].get("evidence") == 1, "what cleo said so often is strong, and waits for a later sitting"
    )
    found = cleo.do("get", "package manager: uv or pip?")
    claim([f["content"] for f in found] == [UV], "cleo, in the other project, recalls it")

    say("they work on for two seconds")
    wait(2.0)
    heading("cleo is killed in the middle of her work")
    cleo.die()
    stage.until("her run ended within two seconds", lambda: len(stage.status().runs) == 2, 2.5)
    claim(bool(stage.find(QUEUE, cleo.session)), "what she had said is there")
    ada.leave()
    bob.turn()
    bob.leave()
    stage.until("nobody is attached", lambda: not stage.status().runs)
    lasted, aged = time.monotonic() - began, stage.clock()
    claim(
        aged <= lasted, f"three agents side by side: memory aged {aged:.1f} s in {lasted:.1f} s, not three times that"
    )


def night(stage: Stage) -> None:
    """Nobody there."""
    heading("Night: nobody is attached")
    before = stage.clock()
    wait(1.5)
    claim(stage.clock() == before, "memory has not aged")


def second_day(stage: Stage) -> str:
    """A new sitting corroborates; a daemon dies; what nobody needed fades. Returns orchard's session."""
    heading("Day two: dan works on orchard")
    dan = stage.agent("dan", "orchard")
    again = dan.record(TESTS)
    claim(again["percept"]["evidence"] == 2, "a sitting begun later says so too: evidence 2")
    claim(abs(again["percept"]["w_confirmed"] - 0.80) < 1e-9, "0.70, then 0.75, then 0.80")

    heading("The daemon is killed with -9 and started again")
    before = stage.clock()
    stage.crash()
    claim(stage.clock() >= before - 15.0, "of the running time at most 15 s are lost")
    known = stage.find(TESTS, dan.session)
    claim(known is not None and known.evidence == 2, "every answered change is there, once")
    after = dan.record("The queue is asked before it is drained")
    claim(after.get("outcome") == "new", "dan's run goes on as if nothing had happened")

    report = dan.turn()
    claim(report["promoted"] == 1, "corroborated in two sittings, the agents' fact is global now")
    promoted = stage.find(TESTS, dan.session)
    claim(
        promoted is not None and promoted.scope == "global", f"strength {promoted.w:.2f}, evidence {promoted.evidence}"
    )

    heading("Time passes while dan works; nobody restates that the login test is flaky")
    known = stage.find(FLAKY, dan.session)
    say(f"{FLAKY!r} was born at 0.70 and is at {known.w:.2f} now; at 0.20 it goes to the archive")
    stage.until(
        "it faded, and the end of a turn sent it to the archive",
        lambda: dan.do("turn") is not None and stage.archived(FLAKY, dan.session) == "pruned",
        3 * HALF_LIFE_S,
    )
    claim(stage.find(UV, dan.session).scope == "global", "what is global hardly faded")
    back = dan.record(FLAKY)
    claim(back["outcome"] == "restored", "said again, it comes back from the archive")
    dan.turn()
    dan.leave()
    return dan.session


def harbour_again(stage: Stage) -> str:
    """A contradiction is settled by a person's word. Returns harbour's session."""
    heading("eve works on harbour: the contradiction is settled")
    eve = stage.agent("eve", "harbour")
    eve.record(THURSDAY, producer="user")
    report = eve.turn()
    claim(report["deferred_for"].get("contradiction") == 1, "the user's word is held back while a contradiction lives")
    say("eve forgets what is wrong")
    old = stage.find(TUESDAY, eve.session)
    if old is not None:
        eve.do("forget", old.id)
    report = eve.turn()
    claim(report["promoted"] == 1, "then it is global")
    held = [p for p in stage.home.rglob("*") if p.is_file() and TUESDAY.encode() in p.read_bytes()]
    claim(not held, "and no file under the home holds a byte of what was forgotten")
    eve.leave()
    return eve.session


def show_files(stage: Stage, session: str) -> None:
    """Stop cleanly; the two files as they lie on disk."""
    stage.until("nobody is attached", lambda: not stage.status().runs)
    stage.daemon.send_signal(signal.SIGTERM)
    claim(stage.daemon.wait(timeout=5) == 0, "the daemon stops cleanly")
    for name in ("global", session):
        path = stage.home / "memory" / f"{name}.json"
        heading(str(path))
        text = path.read_text(encoding="utf-8")
        print(text)
        claim({"percepts", "engrams", "edges", "milkd"} == json.loads(text).keys(), "a whole JSON document")


def main() -> int:
    """Play it; the exit status is 0 if every claim held."""
    root = Path(tempfile.mkdtemp(prefix="milk-"))
    stage = Stage(root)
    print(f"milkd on the throw-away home {stage.home}")
    print(f"Scaled for this play: a session's half-life is {HALF_LIFE_S:g} s instead of 3 days of running time.")
    try:
        first_day(stage)
        night(stage)
        session = second_day(stage)
        harbour_again(stage)
        show_files(stage, session)
    finally:
        stage.daemon.kill()
        stage.daemon.wait()
    print(f"\nThe files lie in {stage.home / 'memory'}; remove {root} when you have seen enough.")
    if failures:
        print(f"{len(failures)} claim(s) did not hold:", *failures, sep="\n  ")
        return 1
    print("Every claim held.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--agent"]:
        agent()
    else:
        sys.exit(main())
