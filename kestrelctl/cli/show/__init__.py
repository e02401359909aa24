"""How commands show what they have to say."""
