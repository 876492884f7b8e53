"""One HTML page on finished runs, for those who did not make them."""
