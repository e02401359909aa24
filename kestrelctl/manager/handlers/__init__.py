"""Acts on what became of workers: programs, mails, requests to other machines."""
