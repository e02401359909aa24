"""The features that a job may ask for and that concern it as a whole: one module each."""
