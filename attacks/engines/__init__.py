"""Engines: each makes adversarial images against a source, put together from `attacks.parts`."""
