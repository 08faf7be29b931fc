"""Where attacks run: never in the process that holds the key, but for those that are given it."""
