"""Files of attempts: inputs that are fetched, outputs and checkpoints that are stored."""
