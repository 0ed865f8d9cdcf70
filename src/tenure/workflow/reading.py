"""What is found wrong with a file while it is read."""

from __future__ import annotations

from typing import Any

from tenure.model.errors import Mistake
from tenure.workflow.nodes import Mark, Path, show_path

BAD: Any = object()
"""What a shape answers instead of a value, after reporting why there is none."""
MOST_MISTAKES = 100


class Enough(Exception):
    """Reading on would not help: the file cannot be read, or has mistakes without end."""


class Reading:
    """One pass over a file: what was found wrong, and what should be said though it is not."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.mistakes: list[Mistake] = []
        self.notices: list[Mistake] = []
        self._bad: set[Path] = set()

    def mistake(self, mark: Mark, path: Path, message: str, hint: str | None = None) -> Any:
        """Always ``BAD``, or ``Enough`` with the last one that anybody would read."""
        self._bad.add(path)
        self.mistakes.append(self.remark(mark, path, message, hint))
        if len(self.mistakes) >= MOST_MISTAKES:
            raise Enough
        return BAD

    def give_up(self, mark: Mark, message: str, hint: str | None = None) -> Enough:
        """To be raised, after a mistake that leaves nothing to read on with."""
        self.mistakes.append(self.remark(mark, (), message, hint))
        return Enough()

    def notice(self, mark: Mark, path: Path, message: str, hint: str | None = None) -> None:
        if len(self.notices) < MOST_MISTAKES:
            self.notices.append(self.remark(mark, path, message, hint))

    def knows_better(self, path: Path) -> bool:
        """Whether a mistake at ``path`` or around it has been reported already."""
        return any(path[:length] in self._bad for length in range(1, len(path) + 1))

    def remark(self, mark: Mark, path: Path, message: str, hint: str | None) -> Mistake:
        """Said of a place, and not kept."""
        return Mistake(
            source=self._source,
            line=mark.line or None,
            column=mark.column or None,
            path=show_path(path),
            message=message,
            hint=hint,
        )
