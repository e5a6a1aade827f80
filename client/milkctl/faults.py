"""Errors as they are told: one sentence of what happened and one of what to do, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec
from milk_client.errors import Ambiguous, MilkError

from milkctl._cli import write
from milkctl.show import visible_lines


def mute(stream: Any) -> None:
    """Whatever is still to be written to a stream that fails goes nowhere, so that leaving does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fill_missing_streams() -> None:
    """Streams that were closed before the start lead nowhere; and no socket takes their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # for the whole life


def as_document(error: MilkError) -> dict[str, Any]:
    """An error as JSON tells it."""
    told: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    if error.field:
        told["field"] = error.field
    if error.candidates:
        told["candidates"] = list(error.candidates)
    return told


def as_text(error: MilkError, *, hint: bool = True) -> str:
    """An error as a person reads it: what happened, then what to do (``hint``)."""
    candidates = [f"  {candidate}" for candidate in error.candidates] if isinstance(error, Ambiguous) else []
    return "\n".join([error.message, *candidates, *([error.hint] if error.hint and hint else [])])


def tell(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong; returns the exit status."""
    if isinstance(error, MilkError):
        status, document, text = error.exit_status, as_document(error), as_text(error)
    elif isinstance(error, click.ClickException):
        status, text = error.exit_code, _of_click(error)
        document = {"code": "usage", "message": error.format_message()}
    elif isinstance(error, OSError):
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        status, text, document = 1, what, {"code": "failed", "message": what}
    else:
        text = f"Failed unexpectedly ({type(error).__name__}: {error}); please report it."
        status, document = 1, {"code": "internal", "message": text}
    try:
        if as_json:
            write(msgspec.json.encode({"error": document}) + b"\n")
    except OSError:
        mute(sys.stdout)
    try:
        click.echo(f"milkctl: {visible_lines(text)}", err=True)
    except OSError:
        mute(sys.stderr)
    return status


def _of_click(error: click.ClickException) -> str:
    text = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None:
        text += f"\n{context.get_usage()}\nTry `{context.command_path} --help`."
    return text
