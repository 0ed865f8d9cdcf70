"""Numbers for those who watch over many processes, in Prometheus's own format.

Two kinds. *Counters* are of what this process saw: requests, and whatever went through its store
(``measured``). Sums over all gateways are right; a worker that talks to the store itself is not in
them. *Gauges* are of the store (``census``): asked at most every few seconds, however often
somebody scrapes, and bounded, however much there is. Nothing is written, and no request waits.
"""
