"""The commands of `bench`: one module per command, which has it under its own name.

Heavy imports stay inside the functions, so that help answers at once.
"""
