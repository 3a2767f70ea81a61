"""What the lessons import, each module with one job: see its name.

This package itself imports nothing, so that ``python -m helpers.<module>`` starts at once.
"""


def load_ipython_extension(ipython):
    """``%load_ext helpers``: the cell magic ``%%cuda``."""
    from helpers.magics import CudaMagics

    ipython.register_magics(CudaMagics)
