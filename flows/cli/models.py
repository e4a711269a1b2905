"""What the commands of trained models do."""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.session import show

if TYPE_CHECKING:
    from flows.settings import Settings


SHOWN = 10
"""So many samples' numbers are printed; --json has all."""


def predict(options: argparse.Namespace) -> None:
    """Predict fields with a trained model."""
    from flows.errors import BadInput
    from flows.settings import current_settings
    from flows.steps.models.request import require_answerable

    settings = current_settings()
    if (options.seed is None) == (options.input is None):
        raise BadInput("name a file of inputs, or say with --seed which sample of the problem")
    if options.check and options.seed is None:
        raise BadInput(
            "--check solves for a sample of the problem: name it with --seed in place of a file"
        )
    require_answerable(options.model, options.input, settings.root)
    from flows.steps.models.prediction import Outputs, predict_file

    if options.seed is not None:
        _predict_seed(options, settings)
        return
    fields = options.out or _beside(options.input)
    outputs = Outputs(fields=fields, plot=options.plot, vtk=options.vtk)
    done = predict_file(options.model, options.input, outputs, settings.root, settings.tracking_uri)
    lines = [f"{done['samples']} samples by {done['model']}: {done['fields']}"]
    lines += [f"wrote {path}" for path in (done["plot"], *done["vtk"]) if path]
    for numbers in done.get("numbers", [])[:SHOWN]:
        lines += [f"{name}: {value:.6g}" for name, value in numbers.items()]
    if done["rel_l2"]:
        mean = sum(done["rel_l2"]) / len(done["rel_l2"])
        lines.append(f"mean relative L2 error against the targets in the file: {mean:.5f}")
    lines += _trust_lines(done["trust"], done.get("reasons", []))
    show(options, done, "\n".join(lines))


def _beside(source: Path) -> Path:
    """Return what predictions are called if nothing is said; a mesh and a folder stay such."""
    from storage.fields.files import format_of
    from storage.fields.meshes import WRITABLE

    if source.is_dir() and source.suffix != ".zarr":
        return Path(f"{source.name}_predicted")
    if format_of(source).is_mesh:
        ending = source.suffix if source.suffix.lower() in WRITABLE else ".vtu"
        return Path(f"{source.stem}_predicted{ending}")
    return Path(f"{source.stem}_predicted.npz")


def _predict_seed(options: argparse.Namespace, settings: "Settings") -> None:
    """Predict a sample of the model's own problem, and solve for it if that is asked for."""
    import tempfile
    import time

    import numpy as np

    from flows.errors import BadInput
    from flows.steps.models.prediction import Outputs, find_model, predict_file
    from lsm_core.benchmarks.variations import NEW_SEEDS, inputs_of
    from lsm_core.solvers.convergence import SolveFailed

    problem = find_model(options.model, settings.root, settings.tracking_uri).benchmark
    began = time.perf_counter()
    try:
        made = problem.generate if options.check else partial(inputs_of, problem)
        sample = made(NEW_SEEDS + options.seed)
    except (SolveFailed, LookupError, ValueError) as error:  # no seed makes what was given
        raise BadInput(f"there is no sample {options.seed} of {problem.name}: {error}") from error
    solver = time.perf_counter() - began
    fields = options.out or Path(f"{problem.name}_{options.seed}_predicted.npz")
    outputs = Outputs(fields=fields, plot=options.plot, vtk=options.vtk)
    told = problem.with_role("input")
    if options.check:
        told = (*told, *problem.with_role("target"))
    known = {variable.name: sample[variable.name][None] for variable in told}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "sample.npz"
        np.savez(source, allow_pickle=False, **known)
        began = time.perf_counter()
        done = predict_file(options.model, source, outputs, settings.root, settings.tracking_uri)
        model = time.perf_counter() - began
    lines = [f"sample {options.seed} of {problem.name} by {done['model']}: {done['fields']}"]
    lines += [f"wrote {path}" for path in (done["plot"], *done["vtk"]) if path]
    lines += _trust_lines(done["trust"], done["reasons"])
    if options.check:
        done |= {"solver_seconds": solver, "model_seconds": model}
        lines.append(
            f"the solver says: relative error {done['rel_l2'][0]:.2%}; it took {solver:.2f} s, the "
            f"model with its opinion {model:.2f} s"
        )
    show(options, done, "\n".join(lines))


def _trust_lines(trust: dict[str, Any] | None, reasons: list[str]) -> list[str]:
    """Return what is thought of predictions, in words."""
    if reasons:
        return [f"do not trust this model here: {reason}" for reason in reasons]
    if trust is None:
        return ["expected error: not known, this model is not calibrated on such a grid"]
    errors, strange = trust["expected_error"], trust["is_strange"]
    middle = sorted(errors)[len(errors) // 2]
    several = f", from {min(errors):.2%} to {max(errors):.2%}" if len(errors) > 1 else ""
    lines = [
        f"expected relative error: at most {middle:.2%}{several} (holds for "
        f"{trust['coverage']:.0%} of samples like those of training)"
    ]
    which = [str(number) for number, found in enumerate(strange) if found]
    if not which:
        return [*lines, "inputs: like the training samples"]
    shown = ", ".join(which[:8]) + (", ..." if len(which) > 8 else "")
    return [
        *lines,
        f"inputs: {len(which)} of {len(strange)} are unlike the training samples (number {shown}); "
        "the expected error does not hold for them",
    ]


def explore(options: argparse.Namespace) -> None:
    """Open a page on this machine: the surrogate at once, the solver beside it."""
    import uvicorn

    from flows.errors import BadInput
    from flows.steps.models.shipped import shipped_names

    if not shipped_names():
        raise BadInput(
            "no trained model comes with this copy of the project; "
            "`python -m infra.box STORE` makes them from finished runs"
        )
    import torch

    from flows.explorer.app import explorer

    torch.set_num_threads(1)  # one small sample at a time: threads would wait for each other
    _require_free(options.port)
    print(f"the page is at http://127.0.0.1:{options.port}; Ctrl-C ends it", flush=True)
    uvicorn.run(
        explorer(),
        host="127.0.0.1",  # no other machine is to reach it
        port=options.port,
        log_level="warning",
        limit_concurrency=200,
        timeout_keep_alive=5,
    )


def _require_free(port: int) -> None:
    import socket

    from flows.errors import BadInput

    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise BadInput(
                f"port {port} of 127.0.0.1 cannot be used ({error.strerror}); choose another "
                "with --port"
            ) from error


def serve(options: argparse.Namespace) -> None:
    """Serve the champion of a problem over HTTP, whoever it is, until it is interrupted."""
    import tempfile

    from flows.errors import BadInput, CellsFailed
    from flows.settings import current_settings
    from flows.stack.services import run_server
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
        code = run_server(command, serving_environment(uri))
    if code:
        raise CellsFailed(f"the server ended with code {code}")


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
    from storage.tracking.registry import describe

    plain = version.to_plain()
    shown = f"{version.name}/{version.number} {', '.join(plain['aliases'])}".rstrip()
    show(options, plain, f"{shown}: {describe(version.tags)}".removesuffix(": "))


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
