"""Attack engines: each makes adversarial images against a source, out of shared losses, norms, steps and starts."""
