"""The engine: the only code that changes the state of a run."""
