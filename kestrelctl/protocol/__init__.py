"""Message types and codecs. Pure."""
