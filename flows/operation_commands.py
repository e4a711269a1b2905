"""What the commands of an operator do: servers, runs that were left, the installation."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.settings import Settings
    from flows.stack import Condition
    from flows.stack_file import Service


def runs(options: argparse.Namespace) -> None:
    """Send what processes that are gone left in their journals."""
    from dataclasses import asdict

    from flows.errors import CellsFailed
    from flows.settings import Settings
    from flows.steps.runs_sync import describe, sync
    from storage.errors import StoreUnavailable
    from storage.run_journal import journal_folder

    # Journals lie on this machine: they are sent while a store elsewhere is away, too.
    settings = Settings.from_environment()
    folder = journal_folder(settings.root)
    try:
        synced = sync(folder, settings.tracking_uri)
    except OSError as error:
        said = f"cannot note in {folder} what was sent: {error.strerror or error}"
        raise StoreUnavailable(f"{said}; let this user write there") from error
    if options.json:
        print(json.dumps([asdict(run) for run in synced]))
    else:
        print("\n".join(describe(synced)))
    if any(run.left for run in synced):
        raise CellsFailed("not everything could be sent; what waits is kept")


def stack(options: argparse.Namespace) -> None:
    """Start, stop or show the servers on this machine, or tell a server of the flows."""
    from flows import stack
    from flows.deployment import deploy
    from flows.settings import Settings

    # Only `up` needs a store that can be written, and looks at it itself: a stack is to be shown
    # and stopped while its store is away, and the flows are declared where there is none.
    settings = Settings.from_environment()
    if options.action in ("backup", "restore"):
        _copy_databases(settings, options)
        return
    if options.action == "deploy":
        deploy(settings, os.environ)
        return
    if options.action == "up":
        stack.up(settings, _say_that_it_waits)
    elif options.action == "down":
        stopped = stack.down(settings, _say_that_it_waits)
        print(
            json.dumps(stopped) if options.json else f"stopped: {', '.join(stopped) or 'nothing'}"
        )
        return
    _show_stack(stack.status(settings), as_json=options.json)


def _copy_databases(settings: "Settings", options: argparse.Namespace) -> None:
    from flows.backup import back_up, restore
    from flows.errors import BadInput

    if options.folder is None:
        raise BadInput(f"name a folder: `lsm stack {options.action} FOLDER`")
    action = {"backup": back_up, "restore": restore}[options.action]
    copies = action(settings, options.folder, _say_that_it_waits)
    names = [str(copy) for copy in copies]
    print(json.dumps(names) if options.json else f"{options.action}: {', '.join(names)}")


def _show_stack(found: "list[tuple[Service, Condition]]", *, as_json: bool) -> None:
    """Print how each service is; exit code 1 unless all are well."""
    if as_json:
        shown = [
            # Without the digest: passwords could be guessed by it.
            {**vars(service), "runs": condition != "ended", "condition": condition}
            for service, condition in found
        ]
        print(json.dumps([{k: v for k, v in each.items() if k != "fingerprint"} for each in shown]))
    else:
        for service, condition in found:
            print(f"{service.name:<15} {condition:<15} {service.url or '-':<22} {service.log}")
        if not found:
            print("nothing was started; `lsm stack up` does it")
    if any(condition != "runs" for _, condition in found):
        raise SystemExit(1)


def _say_that_it_waits() -> None:
    print(
        "lsm: somebody else changes or copies the stack; waiting until that is done",
        file=sys.stderr,
    )


def doctor(options: argparse.Namespace) -> None:
    """Look the installation over; exit code 1 if there is a problem."""
    from dataclasses import asdict

    from flows.settings import Settings, service_environment
    from flows.steps.doctor import examine

    settings = Settings.from_environment()
    found = []
    for finding in examine(settings, service_environment(settings), data=options.data):
        found.append(finding)
        if not options.json:
            print(finding.line(), flush=True)
    if options.json:
        print(json.dumps([asdict(finding) for finding in found]))
    if any(finding.state == "problem" for finding in found):
        raise SystemExit(1)
