"""Fuzzing the engine, from the repository's root: `python -m tests.fuzz KIND FIRST LAST [BATCH]`.

    programs   random programs, compiled for the engine and for the host, must agree
    malformed  PTX with mistakes must be refused with an error, or run
    changed    simple kernels, changed at random, must do what a second reading of PTX says
    hostile    kernels that do what none should must end with an error, and the next one work

What once failed is kept as tests in tests/simt.
"""
