"""Where attacks run: never in the process that holds the key, but for those that are given it.

`base` says what an executor is and finds them by name; `pool` has the retries and time limits that executors with workers
share; `local` and `ray` are two places for workers; `serving` is a worker's side of the conversation, `conversation` the
driver's, and `worker` the attack itself. `keyed` runs what is given the private key, in the driver.

No process here trusts what another sends: `child` starts processes, `channel` carries JSON and arrays between them, `fields`
and `codec` hold them to what was agreed on, `replies` what attacks return; `rendezvous` is for processes elsewhere.
"""
