"""A run's results as one file, for somebody else's leaderboard: packed here, checked and judged again there.

The file is a zip of a JSON manifest (the rows of every table but `result`), the rows of `result` and the images as
arrays, and, if asked for, the weights of the defended classifiers. It holds no code, no pickle and no key.
"""
