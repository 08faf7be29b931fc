"""The one place that has the private key: it trains, keeps and judges the defended model, and never gives the key away.

`base` says what a vault does. A key that a user gave lives in a process of its own (`process`, whose other end is
`serving`), which imports defences and no attacks but the built-in ones that are outside every threat model. The key that the
paper published is no secret: with it everything is done in the process that asks (`here`).
"""
