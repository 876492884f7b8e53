"""Users, virtual clients, and who takes part in which round."""
