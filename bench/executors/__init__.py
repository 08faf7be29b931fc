"""Where attacks run: never in the process that holds the key, but for those that are given it.

`base` says what an executor is and finds them by name; `pool` has the retries and time limits that executors with workers
share; `local` and `ray` are two places for workers; `serving` is a worker's side of the conversation, and `worker` the
attack itself. `keyed` runs what is given the private key, in the driver.
"""
