"""Strategies: which sources an attacker has against a defence, and how each is built."""
