"""``TokenStore``: who may come through the gateway."""

from __future__ import annotations

from datetime import UTC, datetime

from tenure.model.tokens import Role, Token, digest_of
from tenure.ports.store import TokenStore
from tenure.testing.contracts.harness import ContractHarness

LATER = datetime(2090, 1, 1, tzinfo=UTC)


def _token(id: str = "t1", words: str = "opensesame") -> Token:
    return Token(
        id=id,
        name=f"the one called {id}",
        role=Role.OPERATOR,
        digest=digest_of(words),
        queues=("default", "gpu"),
        expires_at=LATER,
    )


class TokenStoreContract(ContractHarness):
    async def test_store_is_a_token_store(self, store: TokenStore) -> None:
        assert isinstance(store, TokenStore)

    async def test_there_are_none_at_first(self, store: TokenStore) -> None:
        assert await store.list_tokens() == []

    async def test_token_is_kept_as_it_was_given_and_stamped(self, store: TokenStore) -> None:
        added = await store.add_token(_token())
        assert added.created_at is not None
        assert added.created_at.tzinfo is not None
        assert (added.name, added.role, added.digest) == (
            "the one called t1",
            Role.OPERATOR,
            digest_of("opensesame"),
        )
        assert (added.queues, added.expires_at, added.revoked_at) == (
            ("default", "gpu"),
            LATER,
            None,
        )
        assert await store.list_tokens() == [added]

    async def test_tokens_are_listed_in_the_order_of_their_birth(self, store: TokenStore) -> None:
        for id in ("t2", "t10", "t1"):
            await store.add_token(_token(id))
        assert [token.id for token in await store.list_tokens()] == ["t2", "t10", "t1"]

    async def test_id_that_is_there_keeps_its_token(self, store: TokenStore) -> None:
        first = await store.add_token(_token())
        assert await store.add_token(_token(words="another")) == first
        assert await store.list_tokens() == [first]

    async def test_revoked_token_is_listed_as_such(self, store: TokenStore) -> None:
        await store.add_token(_token("t1"))
        other = await store.add_token(_token("t2"))
        revoked = await store.revoke_token("t1")
        assert revoked is not None
        assert revoked.revoked_at is not None
        assert await store.list_tokens() == [revoked, other]

    async def test_revoking_again_changes_nothing(self, store: TokenStore) -> None:
        await store.add_token(_token())
        revoked = await store.revoke_token("t1")
        await self.pass_time(0.01)
        assert await store.revoke_token("t1") == revoked
        assert await store.list_tokens() == [revoked]

    async def test_unknown_token_cannot_be_revoked(self, store: TokenStore) -> None:
        await store.add_token(_token())
        assert await store.revoke_token("t2") is None
        (token,) = await store.list_tokens()
        assert token.revoked_at is None
