"""Fuzzing the engine: random programs, compiled for the engine and for the host, must agree.

`python -m tests.fuzz programs FIRST LAST [BATCH]` runs a campaign from the repository's root.
Programs that once failed are kept as tests in tests/simt.
"""
