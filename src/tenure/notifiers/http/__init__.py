"""Callbacks over HTTP, by the rules of Standard Webhooks.

A submitter chooses where they go and a stranger answers: neither is trusted. The request goes out
from inside our network, so ``addresses`` judges every address and ``guard`` sees to it that no
connection is made to one that was not judged (``lookup`` finds them, ``names`` keeps them for a
while). ``target`` refuses URLs and headers that would say more than the submitter may, ``request``
puts them on the wire. ``signing`` proves to the receiver who we are. ``receiving`` bounds what a
reply may hold, ``answer`` decides what it means, ``failures`` are what there is instead of one, and
``wording`` says what failed and gives no secret away. ``settings`` bounds it all, ``opening`` makes
a ``connection``, ``pool`` holds them, ``sender`` ties the parts together.

We speak HTTP ourselves, one POST at a time: a client for all purposes spends several times as long
on a callback as everything else we do for it.

    webhook-id         the delivery's id: the same on every attempt and on every redelivery
    webhook-timestamp  when this attempt was made, seconds since 1970
    webhook-signature  v1,… over id, timestamp and body; only if the target names a secret
    tenure-redelivery  ``true`` if somebody asked for it to be sent again; absent otherwise
"""

from __future__ import annotations

from tenure.notifiers.http.sender import HttpSender, Witness
from tenure.notifiers.http.settings import HttpSettings

__all__ = ["HttpSender", "HttpSettings", "Witness"]
