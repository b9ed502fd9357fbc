"""Reads the machine, and judges nothing. Paths are arguments, so that a test can show another machine."""
