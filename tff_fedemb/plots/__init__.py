"""Pictures of figures, of privacy and of utility."""
