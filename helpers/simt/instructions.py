"""All lane-wise instructions: opcode -> row (see `table`)."""

from . import approximations, comparisons, conversions, floats, integers
from .table import TABLE

__all__ = ["TABLE", "approximations", "comparisons", "conversions", "floats", "integers"]
