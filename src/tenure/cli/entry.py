"""The ``tenure`` command: from arguments to an exit code.

The cheapest question is answered without loading anything. No expected error shows a traceback.
"""

from __future__ import annotations

import errno
import os
import sys

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
COMPLETION = "_TENURE_COMPLETE"
"""What completion scripts ask through."""

TYPE_CHECKING = False  # what typing's own is at run time, without the cost of importing it
if TYPE_CHECKING:
    from tenure.model.errors import TenureError


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        from tenure._version import __version__

        print(f"tenure {__version__}")
        return
    for stream in (sys.stdout, sys.stderr):
        # A file name or a terminal that is not UTF-8 must not cost the answer.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    from tenure.cli.exits import READER_LEFT, Exit

    code = 0
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno not in READER_LEFT:
            print(f"Error: the answer cannot be written: {error.strerror}", file=sys.stderr)
            code = Exit.STORE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        code = Exit.HARD_STOP
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Not by click's own ``main``, which takes a reader that left for a failure."""
    import click
    from click.exceptions import Exit as Ended

    from tenure.cli.app import app
    from tenure.cli.exits import READER_LEFT, Exit

    asked = os.environ.get(COMPLETION)
    try:
        if asked:
            from click.shell_completion import shell_complete

            return shell_complete(app, {}, "tenure", COMPLETION, asked)
        with app.make_context("tenure", arguments) as context:
            code = app.invoke(context)
    except Ended as ended:
        return ended.exit_code
    except click.Abort as abort:
        raise KeyboardInterrupt from abort
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except Exception as error:
        from tenure.model.errors import TenureError

        if isinstance(error, OSError) and error.errno in (*READER_LEFT, *_NO_SPACE):
            raise
        return _explain(error) if isinstance(error, TenureError) else _defect()
    return code if isinstance(code, int) else 0


def _explain(error: TenureError) -> int:
    from tenure.cli.display.mistakes import how_many, mistake_line
    from tenure.cli.display.paint import complain, say
    from tenure.cli.exits import verdict
    from tenure.model.errors import InvalidWorkflow

    code, advice = verdict(error)
    if isinstance(error, InvalidWorkflow):
        for mistake in error.mistakes:
            say(mistake_line(mistake), err=True)
        complain(f"{how_many(error.mistakes)}; nothing was executed")
    else:
        complain(str(error))
    if advice:
        say(f"  {advice}", err=True)
    return code


def _defect() -> int:
    """Says so with what is certain to be there: the defect may be in any other module."""
    import traceback

    from tenure.cli.exits import Exit

    traceback.print_exc()
    print("This is a defect of Tenure. Please report it with the lines above.", file=sys.stderr)
    return Exit.DEFECT
