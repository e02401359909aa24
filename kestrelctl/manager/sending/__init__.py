"""How messages wait until they are sent."""
