"""What the commands of an operator do: the servers, and the installation."""

import argparse
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from flows.cli.session import show, shown_path

if TYPE_CHECKING:
    from flows.settings import Settings


def stack(options: argparse.Namespace) -> None:
    """Start, stop or show the servers on this machine.

    Or tell a server of the flows, or copy databases.
    """
    from flows.settings import Settings
    from flows.stack import local as stack
    from flows.stack.deployment import deploy

    # Only `up` needs a store that can be written, and looks at it itself: a stack is to be shown
    # and stopped while its store is away, and the flows are declared where there is none.
    settings = Settings.from_environment()
    if options.action in ("backup", "restore"):
        _copy_databases(settings, options)
    elif options.action == "deploy":
        deploy(settings, os.environ)
    elif options.action == "down":
        stopped = stack.down(settings)
        show(options, stopped, f"stopped: {', '.join(stopped) or 'nothing'}")
    else:
        if options.action == "up":
            stack.up(settings)
        _show_stack(settings, options)


def _copy_databases(settings: "Settings", options: argparse.Namespace) -> None:
    from flows.errors import BadInput
    from flows.stack.backup import back_up, restore

    if options.folder is None:
        raise BadInput(f"name a folder: `lsm stack {options.action} FOLDER`")
    action = {"backup": back_up, "restore": restore}[options.action]
    names = [str(copy) for copy in action(settings, options.folder)]
    show(options, names, f"{options.action}: {', '.join(names)}")


def _show_stack(settings: "Settings", options: argparse.Namespace) -> None:
    """Print how each service is; exit code 1 unless all are well."""
    from flows.stack.services import services

    found = [(service, service.condition()) for service in services(settings)]
    plain = [
        {**asdict(service), "runs": condition != "ended", "condition": condition}
        for service, condition in found
    ]
    for each in plain:
        del each["fingerprint"]  # passwords could be guessed by it
    lines = [
        f"{service.name:<15} {condition:<15} {service.url or '-':<22} {service.log}"
        for service, condition in found
    ]
    none = "nothing was started; `lsm stack up` does it"
    show(options, plain, "\n".join(lines) or none)
    if any(condition != "runs" for _, condition in found):
        raise SystemExit(1)


def store(options: argparse.Namespace) -> None:
    """Show what of the store nothing refers to any more, and free it if asked."""
    from flows.settings import current_settings
    from flows.steps.data.unused import free, unused

    settings = current_settings()
    found = unused(settings.root, settings.tracking_uri)
    done = free(found, settings.root, settings.tracking_uri) if options.free else []
    lines = [
        f"{each.n_bytes / 1e6:10.1f} MB  {each.kind:<8} {shown_path(str(each.place))}: {each.why}"
        + (", in use just now" if options.free and each not in done else "")
        for each in found
    ]
    n_bytes = sum(each.n_bytes for each in (done if options.free else found))
    verb = "were freed" if options.free else "can be freed; `lsm store prune --free` does it"
    total = f"{n_bytes / 1e6:10.1f} MB  of {len(found)} things {verb}"
    plain = {"unused": found, "freed": done}
    show(options, plain, "\n".join([*lines, total]) if found else "everything is in use")


def doctor(options: argparse.Namespace) -> None:
    """Look the installation over, a line a check.

    Exit code 1 if there is a problem.
    """
    from flows.settings import Settings, service_environment
    from flows.stack.doctor import examine

    settings = Settings.from_environment()
    found = []
    for finding in examine(settings, service_environment(settings), data=options.data):
        found.append(finding)
        if not options.json:
            print(f"{finding.state:<8} {finding.subject:<12} {finding.text}", flush=True)
    if options.json:
        print(json.dumps([asdict(finding) for finding in found]))
    if any(finding.state == "problem" for finding in found):
        raise SystemExit(1)
