"""How a topic is kept in a local file: reading it in, and answering from there."""
