"""Another program that reads the JSON files all the time; tells what it ever saw wrong, as JSON, when told to stop.

Reads a session's file before the global one, and that before the archive: a percept that has left the one
has reached the next.
"""

from __future__ import annotations

import json
import select
import sys
from pathlib import Path
from typing import Any


def ids(memory: Path, session: str) -> set[str]:
    """All ids in the three files, read in the order in which percepts travel. Raises ValueError on half a file."""
    found: set[str] = set()
    for name, key in ((session, "percepts"), ("global", "percepts"), ("archive", "archive")):
        path = memory / f"{name}.json"
        if path.exists():
            for item in json.loads(path.read_bytes())[key]:
                found.add(item["percept"]["id"] if key == "archive" else item["id"])
    return found


def main(memory: Path, session: str) -> None:
    wrong: list[str] = []
    known: set[str] = set()
    rounds = 0
    print("reading", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            found = ids(memory, session)
        except (ValueError, KeyError) as error:
            wrong.append(repr(error))
            continue
        if known - found:
            wrong.append(f"in no file: {sorted(known - found)}")
        known |= found
        rounds += 1
    told: dict[str, Any] = {"wrong": wrong[:5], "rounds": rounds, "known": len(known)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
