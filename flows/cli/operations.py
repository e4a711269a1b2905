"""What the commands of an operator do: the servers, and the installation."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from flows.cli.session import show

if TYPE_CHECKING:
    from flows.settings import Settings
    from flows.stack.local import Condition
    from flows.stack.record import Service


def stack(options: argparse.Namespace) -> None:
    """Start, stop or show the servers on this machine, or tell a server of the flows."""
    from flows.settings import Settings
    from flows.stack import local as stack
    from flows.stack.deployment import deploy

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
        stack.up(settings, _announce_wait)
    elif options.action == "down":
        stopped = stack.down(settings, _announce_wait)
        show(stopped, f"stopped: {', '.join(stopped) or 'nothing'}", as_json=options.json)
        return
    _show_stack(stack.status(settings), as_json=options.json)


def _copy_databases(settings: "Settings", options: argparse.Namespace) -> None:
    from flows.errors import BadInput
    from flows.stack.backup import back_up, restore

    if options.folder is None:
        raise BadInput(f"name a folder: `lsm stack {options.action} FOLDER`")
    action = {"backup": back_up, "restore": restore}[options.action]
    copies = action(settings, options.folder, _announce_wait)
    names = [str(copy) for copy in copies]
    show(names, f"{options.action}: {', '.join(names)}", as_json=options.json)


def _show_stack(found: "list[tuple[Service, Condition]]", *, as_json: bool) -> None:
    """Print how each service is; exit code 1 unless all are well."""
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
    show(plain, "\n".join(lines) or none, as_json=as_json)
    if any(condition != "runs" for _, condition in found):
        raise SystemExit(1)


def _announce_wait() -> None:
    print(
        "lsm: somebody else changes or copies the stack; waiting until that is done",
        file=sys.stderr,
    )


def doctor(options: argparse.Namespace) -> None:
    """Look the installation over; exit code 1 if there is a problem."""
    from flows.settings import Settings, service_environment
    from flows.stack.doctor import examine

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
