"""What every keeper of a log does alike: the append rule, reading and checking of lines."""
