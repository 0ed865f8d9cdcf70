"""Code blocks of the pages, by what their first line says is to be done with them.

===================  ============================================================================
``yaml run``         a workflow that ends well; without ``version`` and ``name`` these are added.
                     A block ``text printed`` below it has all that its tasks print
``yaml refused``     a workflow with mistakes; the block ``text mistakes`` below it has them all
``… evaluated``      and ``… filled``: see ``test_pages.py``
``console run``      commands after ``$``; what follows them must be in their output, in that order.
                     ``…`` stands for any text, spaces for any number of spaces
``console capture``  one command with all that it prints; times, ids and the store may differ,
                     and so may the order of lines, since hosts run in parallel
``console curl``     the same, in one shell, with a `tenure up` of the page's address beside it
``python run``       see ``tests/architecture/test_repository.py``
``… receiver``       and others of the callbacks guide: see ``test_callbacks_guide.py``
===================  ============================================================================
"""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: Path
    line: int
    body: str
    below: str
    """The block that says what to expect."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(info: str, expected: str = "") -> list[Block]:
    """Every block marked ``info``, each followed by one marked ``expected``."""
    found: list[Block] = []
    for page in PAGES:
        text = page.read_text()
        fences = list(FENCE.finditer(text))
        for fence, follower in zip_longest(fences, fences[1:]):
            if fence["info"] != info:
                continue
            line = text.count("\n", 0, fence.start()) + 1
            below = follower["body"] if follower and follower["info"] == expected else ""
            found.append(Block(page, line, fence["body"], below))
    return found
