"""Messages that wait until they are sent."""
