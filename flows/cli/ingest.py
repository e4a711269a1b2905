"""What the command that brings data of one's own does."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from flows.cli.session import session, show, shown_path

if TYPE_CHECKING:
    from flows.steps.data.declaration import Declaration, Splits
    from flows.steps.data.guessing import Wishes


def ingest(options: argparse.Namespace) -> None:
    """Bring files of your own into the store, as a problem with a name."""
    from flows.errors import BadInput
    from flows.steps.data.file_arrays import files_of
    from storage.errors import translated

    files = files_of(options.files)
    if options.look:
        _look(options, files)
        return
    if not options.name:
        raise BadInput("say what the problem is to be called by --as NAME, or --look at the files")
    with translated(ValueError, into=lambda error: BadInput(str(error))):
        declaration = _declaration(options, files)
    if not options.yes:
        print(declaration.to_toml(), file=sys.stderr)
        if not _agreed():
            raise BadInput(
                "nothing was written; say --yes to take this declaration, change it by flags, or "
                "save it, edit it and give it by --declare FILE"
            )
    with session():
        from flows.ingest import ingest

        facts = ingest([str(path.absolute()) for path in files], declaration.to_plain())
    show(options, facts, _text(facts))


def _look(options: argparse.Namespace, files: Any) -> None:
    """Show the arrays of files, with shapes, units and, of a mesh, where they stand."""
    from flows.steps.data.file_arrays import arrays_in

    places = {"point": "at points", "cell": "in cells", "": ""}
    found: dict[str, dict[str, Any]] = {
        str(path): {
            name: {"shape": list(a.shape), "unit": a.unit, "place": a.place}
            for name, a in arrays_in(path).items()
            if not (a.place and ("@" in name or name in ("x", "y", "z")))
        }
        for path in files
    }
    lines = []
    for path, arrays in found.items():
        lines.append(path)
        for name, known in arrays.items():
            size = "x".join(map(str, known["shape"])) or "one number"
            lines.append(f"  {name}  {size}  {places[known['place']]} {known['unit']}".rstrip())
    show(options, found, "\n".join(lines))


def _declaration(options: argparse.Namespace, files: Any) -> "Declaration":
    from dataclasses import replace

    from flows.steps.data.declaration import check_name, read_declaration
    from flows.steps.data.guessing import guessed

    check_name(options.name)
    if options.declare:
        return replace(read_declaration(options.declare), name=options.name)
    return guessed(
        options.name, files, _wishes(options), lambda said: print(f"lsm: {said}", file=sys.stderr)
    )


def _wishes(options: argparse.Namespace) -> "Wishes":
    from flows.steps.data.guessing import Wishes

    axes = {name: tuple(text.split(",")) for name, text in _pairs(options.axes, "--axes").items()}
    return Wishes(
        inputs=(*options.inputs, *options.parameters),
        targets=tuple(options.targets),
        positions=tuple(options.positions),
        volume=options.volume,
        at={"points": "point", "cells": "cell"}.get(options.at, ""),  # type: ignore[arg-type]
        frames=options.frames,
        axes=axes,
        units=_pairs(options.unit, "--unit"),
        geometry=options.geometry,
        each=options.each,
        periodic=options.periodic,
        rollout=options.rollout,
        duplicates=options.duplicates,
        title=options.title,
        splits=_splits(options.split),
    )


def _pairs(given: list[str], flag: str) -> dict[str, str]:
    if wrong := [each for each in given if "=" not in each]:
        raise ValueError(f"{flag} is like NAME=VALUE, got {wrong[0]!r}")
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def _splits(text: str) -> "Splits | None":
    """Return what `file`, `column=NAME` or `800,100,100` means; None if nothing is said."""
    from flows.steps.data.declaration import Splits

    if not text:
        return None
    if text == "file":
        return Splits(by="file")
    if text.startswith("column="):
        return Splits(by="column", column=text.partition("=")[2])
    in_order = text.startswith("first=")
    numbers = text.removeprefix("first=").split(",")
    try:
        train, validation, test = (float(each) for each in numbers)
    except ValueError:
        raise ValueError(
            f"--split is file, column=NAME, or three numbers like 800,100,100, got {text!r}"
        ) from None
    return Splits(train=train, validation=validation, test=test, in_order=in_order)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    print("Take it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _text(facts: dict[str, Any]) -> str:
    sizes = ", ".join(f"{size} {split}" for split, size in facts["samples"].items())
    points = " x ".join(map(str, facts["points"]))
    shown = [
        f"  {v['role']:<10} {v['name']} ({' x '.join(v['dims']) or 'one value'}) {v['unit']}"
        for v in facts["variables"]
    ]
    return "\n".join(
        [
            f"{facts['name']}: {sizes} samples on {points} points, {shown_path(facts['dataset'])}",
            *shown,
            f"next: lsm benchmark --benchmarks {facts['name']} --models lsm fno",
        ]
    )
