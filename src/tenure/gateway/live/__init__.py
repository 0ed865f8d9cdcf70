"""What goes on while somebody looks: events of a run, of all runs, and output, as they come.

*Read once.* However many look, one task asks the store (``rounds``), and one question for all runs
that are looked at, one more for all output, says what has grown (``surveying``): only that is read.
What is new is put into words once (``frames``), and viewers share the very bytes (``watched``).
Nothing is asked while nobody looks.

*A viewer is a place.* It has no queue: it knows how far it has come, takes what is kept behind
that, and reads in the store what is not kept any more (``viewing``). So a slow one costs no memory,
and nobody waits for it. One that takes nothing at all is hung up on (``sending``).

*No gap, no duplicate.* Places are the store's own: ``version.seq`` in a journal, an offset in
output, a cursor in the feed (``feed`` tells how a viewer comes from its cursor to what is shared).
Whoever comes back with the last one, to any gateway, goes on behind it.
"""
