"""Where attacks run: never in the process that holds the key."""
