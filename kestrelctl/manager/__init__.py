"""The shell around the core: sessions, store, clock, metrics."""
