"""A scripted agent: does what standard input says, a JSON object a line, and answers with a line each.

{"do": "open", "who": name, …}   make a Milk with these arguments and attach
{"do": "load", "kw": {"rounds": n, "queries": […]}}   all that are open record, recall and turn, n times
{"do": "drop", "who": name}   let go of one without a word
{"do": "fork", "who": name, "text": …}   a forked child records through the object it inherited
{"do": "shell", "text": …}   a child process, as in the agent's shell, records through a Milk of its own
{"do": "stream", "who": name, "ledger": path, "count": n, "tag": …}   record and note each answer
{"do": any method of Milk, "who": name, "args": […], "kw": {…}}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from milk_client import Milk, MilkError

known: dict[str, Milk] = {}

SHELL = """
import sys
from milk_client import Milk
with Milk(timeout=20) as milk:
    print(milk.record(sys.argv[1]).outcome)
"""


def words(number: int) -> str:
    """A word of letters alone for each number, so that no two facts are near each other."""
    letters = ""
    for _ in range(6):
        number, digit = divmod(number, 20)
        letters += "bcdfghjkmnpqrtvwxzlq"[digit] + "aeiouaeiouaeiouaeiou"[(digit * 7 + number) % 20]
    return letters + "k"


def stream(milk: Milk, ledger: str, count: int, tag: int, rich: bool) -> int:
    """Record distinct facts; a line in the ledger before each request and one after its answer.

    ``rich``: some are said two or three times, some are the user's, and a turn now and then promotes those.
    """
    with Path(ledger).open("a") as file:
        for n in range(count):
            number = tag * 1_000_000 + n
            content = f"{words(number)} {words(number + 7_000_003)} {words(number + 13_000_027)}"
            for _ in range(1 + n % 3 if rich else 1):
                file.write(f"asked {content}\n")
                file.flush()
                done = milk.record(content, producer="user" if rich and n % 7 == 3 else "primary")
                file.write(f"answered {content} {done.id}\n")
                file.flush()
            if rich and n % 10 == 9:
                milk.turn()
    return count


def forked(milk: Milk, text: str) -> str:
    """What a forked child gets for recording with the object that it inherited."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, milk.record(text).outcome.encode())
            milk.close()
        except BaseException as error:
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        return told.read()


def shell(text: str) -> str:
    """What a child process gets for recording with a Milk of its own."""
    done = subprocess.run([sys.executable, "-c", SHELL, text], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def load(rounds: int, queries: list[str]) -> dict[str, Any]:
    """Each of the known agents in turn records, recalls and turns; errors and the longest wait."""
    errors: list[str] = []
    longest = 0.0
    done = 0
    seed = os.getpid()
    for n in range(rounds):
        for number, milk in enumerate(known.values()):
            begin = time.monotonic()
            try:
                unlike = (seed * 1_000 + n) * 100 + number
                milk.record(f"{words(unlike)} {words(unlike + 5_000_011)} {words(unlike + 9_000_049)}")
                milk.get(queries[(n + number) % len(queries)])
                milk.turn()
                done += 3
            except MilkError as error:
                errors.append(repr(error))
            longest = max(longest, time.monotonic() - begin)
    return {"errors": errors, "longest_s": longest, "done": done}


def obey(line: dict[str, Any]) -> Any:
    do, who = line["do"], line.get("who", "milk")
    more = line.get("kw", {})
    match do:
        case "open":
            known[who] = Milk(**{"timeout": 20.0, **more})
            known[who].connect()
            return known[who].run_id
        case "drop":
            known.pop(who)  # let go of without a word
            return None
        case "fork":
            return forked(known[who], line["text"])
        case "shell":
            return shell(line["text"])
        case "stream":
            return stream(known[who], line["ledger"], line["count"], line["tag"], line.get("rich", False))
        case "load":
            return load(**more)
        case "session":
            return known[who].session
        case _:
            return getattr(known[who], do)(*line.get("args", ()), **more)


def main() -> None:
    for text in sys.stdin:
        try:
            told: dict[str, Any] = {"is": msgspec.to_builtins(obey(json.loads(text)))}
        except MilkError as error:
            told = {"error": error.code, "message": error.message, "field": error.field}
        except Exception as error:
            told = {"error": "crash", "message": repr(error), "field": ""}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
