"""The parts of a recorder: open session, its writer, state capture, open calls."""
