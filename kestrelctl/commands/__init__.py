"""Commands that workers offer: what they are called, what they take, what is run."""
