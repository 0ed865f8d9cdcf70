"""A record that this version of Tenure cannot read, among others: those are handed out anyway.

Somebody has edited the database, or a defect has written what nobody should. Whoever claimed such a
run has it until the lease ends, and only then does the next one try.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import msgspec

from tenure.model.errors import StoreIncompatible
from tenure.stores.postgres.rows import Record, record_of
from tenure.stores.record_rows import Text

_log = logging.getLogger("tenure.stores")


def readable(texts: Iterable[Text]) -> Iterator[Record]:
    for text in texts:
        try:
            yield record_of(text)
        except StoreIncompatible as wrong:
            run_id = msgspec.json.decode(text)[0][1]
            _log.warning("run %s is left alone: %s; others are not held up by it", run_id, wrong)
