"""How long what crosses a process border may be."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from tenure.model.query import MAX_PAGE

PRINTABLE = r"^(?![\s\S]*[\x00-\x1f\x7f])"
"""No control character anywhere: not every store can hold them, and no log or terminal should."""

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=PRINTABLE)]
Sentence = Annotated[str, Meta(max_length=2000)]
Cursor = Annotated[str, Meta(min_length=1, max_length=500)]
PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Moment = Annotated[datetime, Meta(tz=True)]
"""With its time zone: without it nobody knows when that is."""
