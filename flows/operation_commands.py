"""What the commands of an operator do: servers, runs that were left, the installation."""

import argparse
import json
import os

from flows.commands import current_settings


def runs(options: argparse.Namespace) -> None:
    """Send what processes that are gone left in their journals."""
    from dataclasses import asdict

    from flows.errors import CellsFailed
    from flows.steps.runs_sync import describe, sync
    from storage.run_journal import journal_folder

    settings = current_settings()
    synced = sync(journal_folder(settings.root), settings.tracking_uri)
    if options.json:
        print(json.dumps([asdict(run) for run in synced]))
    else:
        print("\n".join(describe(synced)))
    if any(run.left for run in synced):
        raise CellsFailed("not everything could be sent; what waits is kept")


def stack(options: argparse.Namespace) -> None:
    """Start, stop or show the servers on this machine, or tell a server of the flows."""
    from flows import stack

    settings = current_settings()
    if options.action == "deploy":
        stack.deploy(settings, os.environ)
        return
    if options.action == "up":
        stack.up(settings)
    elif options.action == "down":
        stopped = stack.down(settings)
        print(
            json.dumps(stopped) if options.json else f"stopped: {', '.join(stopped) or 'nothing'}"
        )
        return
    found = stack.status(settings)
    if options.json:
        print(json.dumps([{**vars(service), "runs": runs} for service, runs in found]))
        return
    for service, runs in found:
        print(f"{service.name:<15} {'runs' if runs else 'is down'}  {service.url}  {service.log}")
    if not found:
        print("nothing was started; `lsm stack up` does it")


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
