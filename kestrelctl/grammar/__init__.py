"""The words of the command line that the chat shares: what is typed, and how things are called."""
