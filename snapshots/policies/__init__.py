"""Policy versions: what the log says of them."""
