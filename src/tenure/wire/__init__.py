"""JSON shapes that cross a process border."""
