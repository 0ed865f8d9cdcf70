"""One module per command, or per group of commands; each is imported when it is called."""
