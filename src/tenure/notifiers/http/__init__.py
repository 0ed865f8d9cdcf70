"""Callbacks over HTTP, by the rules of Standard Webhooks.

Neither the submitter, which chooses the URL, nor the receiver is trusted. ``guard`` checks every
address, because requests are sent from inside our network; ``target`` refuses unusable URLs and
headers, ``signing`` signs, ``client`` posts, ``answer`` interprets the reply without revealing a
secret, and ``sender`` uses them all.

    webhook-id         the delivery's id: the same on every attempt and on every redelivery
    webhook-timestamp  when this attempt was made, seconds since 1970
    webhook-signature  v1,… over id, timestamp and body; only if the target names a secret
    tenure-redelivery  ``true`` if an operator asked for it to be sent again; absent otherwise
"""

from __future__ import annotations

from tenure.notifiers.http.client import HttpSettings, Trace
from tenure.notifiers.http.sender import HttpSender

__all__ = ["HttpSender", "HttpSettings", "Trace"]
