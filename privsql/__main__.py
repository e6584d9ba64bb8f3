"""The ``privsql`` command, and ``python -m privsql``."""

import os
import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line. After Ctrl-C all is cleaned up; the process then ends without waiting for the engine."""
    try:
        from privsql.cli.app import app  # noqa: PLC0415 (an interruption of the imports is one like any other)

        app()
    except KeyboardInterrupt:
        _end()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _end()
        raise


def _end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
