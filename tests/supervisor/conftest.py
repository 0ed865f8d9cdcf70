from __future__ import annotations

import pytest

from tests.transports.conftest import new_transport as new_transport
from tests.transports.conftest import settings_of_the_worker as settings_of_the_worker
from tests.transports.conftest import temporary as temporary
from tests.transports.conftest import transport as transport


@pytest.fixture
def parent() -> str:
    return "supervised"
