"""What the commands of trained models do."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.session import show

if TYPE_CHECKING:
    from flows.settings import Settings


def predict(options: argparse.Namespace) -> None:
    """Predict fields with a trained model."""
    from flows.settings import current_settings
    from flows.steps.models.prediction import Outputs, predict_file

    settings = current_settings()
    outputs = Outputs(fields=options.out, plot=options.plot, vtk=options.vtk)
    done = predict_file(options.model, options.input, outputs, settings.root, settings.tracking_uri)
    lines = [f"{done['samples']} samples by {done['model']}: {done['fields']}"]
    lines += [f"wrote {path}" for path in (done["plot"], *done["vtk"]) if path]
    if done["rel_l2"]:
        mean = sum(done["rel_l2"]) / len(done["rel_l2"])
        lines.append(f"mean relative L2 error against the targets in the file: {mean:.5f}")
    show(options, done, "\n".join(lines))


def serve(options: argparse.Namespace) -> None:
    """Serve the champion of a problem over HTTP, whoever it is, until it is interrupted."""
    import subprocess
    import tempfile

    from flows.errors import BadInput, CellsFailed
    from flows.settings import current_settings
    from flows.steps.models.serving import serving_command, serving_environment, write_following
    from storage.errors import NoSuchModel
    from storage.tracking.store import absolute

    settings = current_settings()
    uri = absolute(settings.tracking_uri)
    with tempfile.TemporaryDirectory() as scratch:
        reference = f"pde-{options.benchmark}@{options.alias}"
        try:
            folder = write_following(reference, Path(scratch) / "model", settings.root, uri)
        except NoSuchModel as error:
            raise BadInput(str(error)) from error
        command = serving_command(folder, options.host, options.port)
        print(
            f"{reference} answers at http://{options.host}:{options.port}/invocations", flush=True
        )
        ended = subprocess.run(command, env=dict(serving_environment(uri)), check=False)
    if ended.returncode:
        raise CellsFailed(f"the server ended with code {ended.returncode}")


def registry(options: argparse.Namespace) -> None:
    """Keep, show and promote trained models.

    A released one is imported, not registered.
    """
    from flows.errors import BadInput
    from flows.settings import current_settings

    settings = current_settings()
    if options.action == "list":
        _list_registered(settings, options)
        return
    if not options.what:
        raise BadInput(f"say what to {options.action}; `lsm registry --help` explains")
    if options.action == "import":
        _import_released(settings, options)
        return
    place = settings.root, settings.tracking_uri
    if options.action == "history":
        _show_history(settings, options)
        return
    if options.action == "add":
        from flows.steps.models.registration import register_run

        version = register_run(options.what, *place, options.alias)
    else:
        from flows.steps.models.champions import promote, rollback

        if not options.why:
            raise BadInput(f"say with --why for what reason you {options.action}; it is kept")
        change = {"promote": promote, "rollback": rollback}[options.action]
        version = change(options.what, options.why, *place)
    plain = version.to_plain()
    shown = f"{version.name}/{version.number} {', '.join(plain['aliases'])}".rstrip()
    show(options, plain, shown)


def _show_history(settings: "Settings", options: argparse.Namespace) -> None:
    """Print what was decided on the champions of a problem, a line each, oldest first."""
    from datetime import UTC, datetime

    from flows.steps.models.champions import champion_history

    found = champion_history(options.what, settings.root, settings.tracking_uri)
    lines = []
    for turn in found:
        moment = datetime.fromtimestamp(turn.at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        champion = f"{turn.before or '-'} -> {turn.after or '-'}"
        if turn.before == turn.after:
            champion = f"{turn.after or '-'}, not {turn.challenger}"
        lines.append(f"{moment}  {turn.league:<15} {turn.verdict:<13} {champion:<12} {turn.reason}")
    none = f"nothing was decided on {options.what} yet"
    show(options, [turn.to_plain() for turn in found], "\n".join(lines) or none)


def _list_registered(settings: "Settings", options: argparse.Namespace) -> None:
    from flows.steps.models.registration import registered_models

    found = registered_models(settings.root, settings.tracking_uri)
    lines = [
        f"{version['name']}/{version['number']:<4} {version['tags'].get('model', ''):<9} "
        f"test relative L2 {version['tags'].get('test/rel_l2', '?'):<9} "
        f"{', '.join(version['aliases'])}".rstrip()
        for version in found
    ]
    none = "no model is registered; `lsm registry add IDENTITY` does it"
    show(options, found, "\n".join(lines) or none)


def _import_released(settings: "Settings", options: argparse.Namespace) -> None:
    from flows.errors import BadInput
    from flows.steps.models.released import import_released

    if not options.benchmark:
        raise BadInput("say with --benchmark which problem the released file is for")
    file = Path(options.what)
    folder = import_released(file, options.benchmark, options.name or file.stem, settings.root)
    show(options, {"folder": str(folder)}, f"kept as {folder}")
