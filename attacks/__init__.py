"""Attacks: engines make adversarial images against a source, strategies say which sources there are."""
