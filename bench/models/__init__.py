"""Classifiers: how they are described, trained, kept and found again."""
