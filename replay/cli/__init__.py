"""The command `steplog`: it parses and prints, and decides nothing else."""
