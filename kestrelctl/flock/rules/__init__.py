"""What pools tell each other, whom one asks, and what one lends. Pure."""
