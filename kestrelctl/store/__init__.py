"""The durable data of a pool: one interface, several backends."""
