"""What is durable: one interface, several backends."""
