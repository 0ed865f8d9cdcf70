"""Seed 001, query by run_id, as a program on the other side of HTTP sees it. Each test is named
after its scenario."""

from __future__ import annotations

from tenure.model.update import LeaseRequest
from tests.gateway.house import Client, House


class TestRunnerProvidesRunStatusQueryByRunId:
    def test_query_existing_run(self, admin: Client, house: House, queued: str) -> None:
        """WHEN a client queries with an existing run_id THEN the corresponding snapshot comes with
        its current status, timestamps and progress of steps and hosts."""
        before = admin.get(f"/v1/runs/{queued}").json
        request = LeaseRequest(owner_id="worker-1", seconds=60, claim_id=f"claim-{queued}")
        house.run(house.store.claim_run(queued, request))  # type: ignore[attr-defined]
        during = admin.get(f"/v1/runs/{queued}").json
        admin.post(f"/v1/runs/{queued}/cancel", {"reason": "enough"})
        after = admin.get(f"/v1/runs/{queued}").json
        assert [run["run_id"] for run in (before, during, after)] == [queued] * 3
        assert (before["owner_id"], during["owner_id"]) == (None, "worker-1")
        assert before["version"] < during["version"] < after["version"]
        assert before["updated_at"] < during["updated_at"] < after["updated_at"]
        assert before["created_at"] == after["created_at"]
        assert after["cancel_requested_at"] is not None
        assert after["steps"][0]["hosts"]["web1"]["status"] == "pending"

    def test_query_unknown_run(self, admin: Client) -> None:
        """WHEN a client queries with a run_id that does not exist THEN the answer is not found
        instead of a state that was made up."""
        answer = admin.get("/v1/runs/order-9999")
        assert (answer.status, answer.problem) == (404, "run-not-found")
        assert set(answer.json) == {"type", "title", "status", "detail", "run_id"}
        for path in ("events", "explain", "definition", "logs"):
            assert admin.get(f"/v1/runs/order-9999/{path}").problem == "run-not-found"
