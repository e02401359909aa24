"""Messages by chat: of people, and of the simplest workers."""
