"""The ``tenure`` command: from arguments to an exit code.

The cheapest question is answered without loading anything. No expected error shows a traceback.
"""

from __future__ import annotations

import os
import sys

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
    from tenure.cli.exits import Exit

    code = 0
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left: what was asked could be answered, and nobody wants the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        code = Exit.HARD_STOP
    sys.exit(code)


def _run() -> int:
    import click

    from tenure.cli.app import app
    from tenure.cli.exits import Exit

    try:
        code = app.main(prog_name="tenure", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except click.Abort as abort:
        raise KeyboardInterrupt from abort
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  told apart below
        from tenure.model.errors import TenureError

        if not isinstance(error, TenureError):
            return _defect()
        return _explain(error)
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
