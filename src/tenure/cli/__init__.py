"""The command line. Printing lives here and nowhere else."""
