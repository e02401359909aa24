"""The part of a worker that handles the attempts that it is sent."""
