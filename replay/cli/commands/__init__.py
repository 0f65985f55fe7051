"""One file per verb of the command, named as the verb is typed."""
