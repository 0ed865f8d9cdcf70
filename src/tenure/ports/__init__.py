"""What Tenure needs from the outside, one small protocol per file.

Only ``RunStateStore`` is required of an integrator; every further power is a protocol of its
own, and what is lost without it is said there. Ports follow semantic versioning: a new power
is a new protocol, never a new method on an old one.
"""

VERSION = "1.0"
