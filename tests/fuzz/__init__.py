"""Fuzzing the engine: random programs against an oracle, hostile kernels, malformed PTX.

`python -m tests.fuzz programs|hostile|mutants` runs a campaign from the repository's root; the
modules say what each does. Inputs that once failed are kept as tests in tests/simt.
"""
