"""Calls and runs that are captured once, and replayed for inputs of the same form."""
