"""`bench reproduce`: how much of the paper a preset runs, what differs from the paper then, and running it."""
