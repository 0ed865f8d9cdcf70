"""Random tests draw the same examples each time, so that a red build can be repeated by anybody.
The searches marked ``long`` bring seeds of their own."""

import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: the processes of the tests would inherit that, and
    # could not be asked to stop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
