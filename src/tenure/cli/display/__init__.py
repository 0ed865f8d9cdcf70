"""Display: text made safe for a terminal, colours, times, the views of a run."""
