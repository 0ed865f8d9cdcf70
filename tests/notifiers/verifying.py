"""A second hand that checks our signatures, sharing no code with the library that makes them."""

from __future__ import annotations

from collections.abc import Mapping


def by_resend(secret: str, body: bytes, headers: Mapping[str, str]) -> object:
    """The verifier in the library of a mail service. ``ValueError`` if it is not satisfied."""
    import resend  # a large one, for a few tests

    return resend.Webhooks.verify(
        {
            "payload": body.decode(),
            "headers": {
                "id": headers["webhook-id"],
                "timestamp": headers["webhook-timestamp"],
                "signature": headers["webhook-signature"],
            },
            "webhook_secret": secret,
        }
    )
