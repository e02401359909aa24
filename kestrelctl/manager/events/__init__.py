"""What became of members: it is kept, told, and acted on."""
