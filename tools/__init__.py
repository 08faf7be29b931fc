"""Small programs for people who work on bench: run from the repository, not installed."""
