"""Callbacks over HTTP, by the rules of Standard Webhooks.

A submitter chooses where they go and a stranger answers: neither is trusted. The request goes out
from inside our network, so ``guard`` sees to it that no connection is made to an address it has not
judged. ``target`` refuses URLs and headers that would say more than the submitter may, ``signing``
proves to the receiver where a callback comes from, ``client`` posts it, ``answer`` decides what the
reply means and says it without giving a secret away, and ``sender`` ties the parts together.

    webhook-id         the delivery's id: the same on every attempt and on every redelivery
    webhook-timestamp  when this attempt was made, seconds since 1970
    webhook-signature  v1,… over id, timestamp and body; only if the target names a secret
    tenure-redelivery  ``true`` if an operator asked for it to be sent again; absent otherwise
"""

from __future__ import annotations

from tenure.notifiers.http.client import HttpSettings, Trace
from tenure.notifiers.http.sender import HttpSender

__all__ = ["HttpSender", "HttpSettings", "Trace"]
