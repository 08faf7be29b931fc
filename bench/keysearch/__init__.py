"""Guessing a defence's key: where guesses come from, how they are scored, raced and reported."""
