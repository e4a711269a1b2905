"""What the commands of trained models do."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from flows.commands import current_settings

if TYPE_CHECKING:
    from flows.settings import Settings


def predict(options: argparse.Namespace) -> None:
    """Predict the fields of a file with a trained model."""
    from flows.steps.prediction import Outputs, predict_file

    settings = current_settings()
    outputs = Outputs(fields=options.out, plot=options.plot, vtk=options.vtk)
    done = predict_file(options.model, options.input, outputs, settings.root, settings.tracking_uri)
    if options.json:
        print(json.dumps(done))
        return
    print(f"{done['samples']} samples by {done['model']}: {done['fields']}")
    for path in (done["plot"], *done["vtk"]):
        if path:
            print(f"wrote {path}")
    if done["rel_l2"]:
        mean = sum(done["rel_l2"]) / len(done["rel_l2"])
        print(f"mean relative L2 error against the targets in the file: {mean:.5f}")


def registry(options: argparse.Namespace) -> None:
    """Show the registered models, add one, make one the champion, or import a released one."""
    from flows.errors import BadInput

    settings = current_settings()
    if options.action == "list":
        _list_registered(settings, options.json)
        return
    if not options.what:
        raise BadInput(f"say what to {options.action}; `lsm registry --help` explains")
    if options.action == "import":
        _import_released(settings, options)
        return
    from flows.steps.registration import promote, register_run

    if options.action == "add":
        version = register_run(options.what, settings.root, settings.tracking_uri, options.alias)
    else:
        version = promote(options.what, settings.tracking_uri)
    plain = version.plain()
    shown = f"{version.name}/{version.number}"
    print(json.dumps(plain) if options.json else f"{shown} {', '.join(plain['aliases'])}".rstrip())


def _list_registered(settings: "Settings", as_json: bool) -> None:
    from flows.steps.registration import registered_models

    found = registered_models(settings.tracking_uri)
    if as_json:
        print(json.dumps(found))
        return
    for version in found:
        tags = version["tags"]
        aliases = ", ".join(version["aliases"])
        print(
            f"{version['name']}/{version['number']:<4} {tags.get('model', ''):<9} "
            f"test relative L2 {tags.get('test/rel_l2', '?'):<9} {aliases}".rstrip()
        )
    if not found:
        print("no model is registered; `lsm registry add IDENTITY` does it")


def _import_released(settings: "Settings", options: argparse.Namespace) -> None:
    from flows.errors import BadInput
    from flows.steps.released import import_released

    if not options.benchmark:
        raise BadInput("say with --benchmark which problem the released file is for")
    file = Path(options.what)
    folder = import_released(file, options.benchmark, options.name or file.stem, settings.root)
    print(json.dumps({"folder": str(folder)}) if options.json else f"kept as {folder}")
