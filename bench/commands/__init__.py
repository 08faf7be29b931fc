"""The commands of `bench`, a module for each family. Heavy imports stay inside the functions: help answers at once."""
