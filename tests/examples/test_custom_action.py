"""Actions of one's own, as the example shows them."""

from __future__ import annotations

import pytest

from tests.examples.running import User


@pytest.mark.slow
def test_custom_action(user: User) -> None:
    assert user.python("examples/custom_action.py").splitlines() == [
        "lamp: success",
        "  reserve shop1 success {'LEFT': 10}",
        "  serve shop1 success started: till on shop1",
        "  serve shop2 success started: till on shop2",
        "chair: failed (step 'reserve' failed on shop1: LookupError: only 1 of chair left)",
        "  reserve shop1 failed LookupError: only 1 of chair left",
        "  serve shop1 skipped",
        "  serve shop2 skipped",
        "a mistake is found before anything runs:",
        "  sell.yaml:15:31: steps[1].args.state: must be one of started, stopped, not 'stared'; "
        "did you mean 'started'?",
    ]
