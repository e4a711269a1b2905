"""The command `lsm`."""

import os
import sys

from flows.cli.parser import EXIT_BAD_INPUT, parser

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""What Prefect and MLflow must find before they are imported, or they report what is done."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    for name, value in TELEMETRY_OFF.items():
        os.environ.setdefault(name, value)
    options = parser().parse_args(arguments)
    if options.store:
        os.environ["LSM_STORE"] = options.store
    from flows.errors import BAD_INPUT, FAILURES

    try:
        options.run(options)
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has enough; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("lsm: interrupted; what was done is kept", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BAD_INPUT as error:
        print(f"lsm: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except FAILURES as error:
        print(f"lsm: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0
