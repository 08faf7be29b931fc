"""A benchmark and leaderboard harness for key-based adversarial defences."""

__version__ = "0.1.0"
