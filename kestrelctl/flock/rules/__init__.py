"""The rules of a flock: what pools announce, whom one asks, and what one lends. Pure."""
