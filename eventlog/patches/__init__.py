"""How the difference of two states is found on their canonical bytes."""
