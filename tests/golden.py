"""The golden vectors, wherever they are: beside the repository where they are kept, else the copies here."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
ORIGINALS = ROOT.parent / "shared" / "vectors"
COPIES = ROOT / "tests" / "vectors"
NAMES = ("near-identity.json", "running-time.json", "words.json")


@cache
def vectors(name: str) -> Any:
    """The decoded JSON of one of ``NAMES``; the ending may be left out. Not to be changed by the caller."""
    name = name if name.endswith(".json") else f"{name}.json"
    folder = ORIGINALS if ORIGINALS.is_dir() else COPIES
    return msgspec.json.decode((folder / name).read_bytes())
