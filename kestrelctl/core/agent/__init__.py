"""What a worker does with the attempts that it is sent."""
