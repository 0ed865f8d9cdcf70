"""Random tests draw the same examples each time, so that a red build can be repeated by anybody.
The searches marked ``long`` bring seeds of their own."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
