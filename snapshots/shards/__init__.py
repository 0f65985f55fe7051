"""What stands on torch besides the writer, the reader and the saver."""
