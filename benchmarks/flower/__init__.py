"""A round in Flower, in an environment of its own."""
