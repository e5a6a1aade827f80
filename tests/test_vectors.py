"""The copies of the golden vectors are what they are copies of."""

from __future__ import annotations

from pathlib import Path

import golden
import msgspec
import pytest

PACKAGED = golden.ROOT / "milkd" / "rules" / "words.json"


def parses(path: Path) -> bool:
    return isinstance(msgspec.json.decode(path.read_bytes()), dict)


@pytest.mark.parametrize("name", golden.NAMES)
def test_the_copy_equals_the_original(name: str) -> None:
    copy = golden.COPIES / name
    assert parses(copy)
    if golden.ORIGINALS.is_dir():
        assert copy.read_bytes() == (golden.ORIGINALS / name).read_bytes()


def test_the_packaged_words_equal_the_vectors() -> None:
    assert PACKAGED.read_bytes() == (golden.COPIES / "words.json").read_bytes()
    if golden.ORIGINALS.is_dir():
        assert PACKAGED.read_bytes() == (golden.ORIGINALS / "words.json").read_bytes()


def test_vectors_are_found_with_and_without_the_ending() -> None:
    assert golden.vectors("near-identity") == golden.vectors("near-identity.json")
    assert len(golden.vectors("near-identity")["pairs"]) == 112
