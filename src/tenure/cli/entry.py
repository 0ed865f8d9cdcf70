"""The ``tenure`` command: from arguments to an exit code.

``--version`` is answered without loading anything. No expected error shows a traceback.
"""

from __future__ import annotations

import errno
import os
import sys

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
COMPLETION = "_TENURE_COMPLETE"
"""Set by completion scripts."""


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from tenure._version import __version__

        print(f"tenure {__version__}")
        return
    from tenure.cli.exit_codes import READER_LEFT
    from tenure.cli.streams import discard, prepare_streams

    prepare_streams()
    code = 0
    as_json = "--json" in arguments
    try:
        code = _run(arguments, as_json=as_json)
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in READER_LEFT:
            from tenure.cli.errors import not_written

            code = not_written(error, as_json=as_json)
    except KeyboardInterrupt:
        from tenure.cli.errors import stopped

        code = stopped(as_json=as_json)
    discard(sys.stdout)
    discard(sys.stderr)
    sys.exit(code)


def _run(arguments: list[str], *, as_json: bool) -> int:
    """Not with click's own ``main``, which treats a closed pipe as a failure."""
    import click
    from click.exceptions import Exit as Ended

    from tenure.cli.app import app
    from tenure.cli.exit_codes import READER_LEFT

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
        from tenure.cli.errors import wrong_usage

        return wrong_usage(error, as_json=as_json)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (*READER_LEFT, *_NO_SPACE):
            raise
        from tenure.model.errors import TenureError

        if not isinstance(error, TenureError):
            return _defect(as_json=as_json)
        from tenure.cli.errors import expected

        return expected(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def _defect(*, as_json: bool) -> int:
    """Report a defect using only what is certain to work: it may be in any other module."""
    import json
    import traceback

    from tenure.cli.exit_codes import Exit

    lines = traceback.format_exc()
    said = "This is a defect of Tenure. Please report it with the traceback."
    if as_json:
        facts = {"type": "defect", "message": said, "exit_code": 70, "traceback": lines}
        print(json.dumps({"error": facts}), file=sys.stderr)
    else:
        print(lines, said, sep="", file=sys.stderr)
    return Exit.DEFECT
