"""Live streams of run events, of the feed of all runs, and of output.

*One read for all viewers.* One task polls the store (``feed.PollLoop``): one query for the versions
of all watched runs and one for the sizes of all output, then only grown ones are read. New events
are encoded once and shared. Without viewers nothing is polled.

*A viewer is a position.* It has no queue: it takes kept data after its position, and reads older
data from the store. So a slow viewer costs no memory and delays no other. A viewer that takes
nothing at all is disconnected.

*No gap, no duplicate.* Positions are the store's own: ``version.seq`` in a journal, an offset in
output, a cursor in the feed. A client continues after its last position, at any gateway.
"""
