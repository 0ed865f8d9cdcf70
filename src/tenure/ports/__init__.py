"""What Tenure needs from the outside, as protocols.

A store must implement ``RunStateStore``; every other protocol is optional, and its docstring says
what is lost without it. Ports follow semantic versioning: a new capability is a new protocol, never
a new method on an existing one.
"""

VERSION = "1.0"
