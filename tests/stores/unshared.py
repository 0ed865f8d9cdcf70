"""Running a program in namespaces of its own."""

from __future__ import annotations

import subprocess


def unshared(*what: str) -> list[str]:
    """The words before a program that has these (options of ``unshare``) for itself. Who is not
    root, or not allowed to as root, does it as the root of a namespace of users."""
    plainly = ["unshare", *what]
    if subprocess.run([*plainly, "true"], capture_output=True, check=False).returncode == 0:
        return plainly
    return ["unshare", "--user", "--map-root-user", *what]
