"""Start the command line: `python -m flows.cli`, for torchrun and where no script is installed."""

import sys

from flows.cli.main import main

sys.exit(main())
