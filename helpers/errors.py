"""Errors that are told in a sentence: a notebook shows them without a traceback.

What they say names the thing, its value and what to write instead; the way through this project's
code to the place that found it would only hide that.
"""

from __future__ import annotations


class Told(Exception):
    """Base class of errors that IPython shows by their text alone.

    Programs, and tests that compare an error's name and value, see an ordinary exception.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback (InteractiveShell.showtraceback)."""
        return [f"{type(self).__name__}: {self}"]


class WrongValue(Told, ValueError):
    """A value that cannot be used."""


class WrongType(Told, TypeError):
    """A thing of a kind that cannot be used."""


class NotOnRecord(Told, KeyError):
    """A figure that was not measured."""

    __str__ = Exception.__str__  # KeyError's own shows the sentence in quotes


class NoSuchFile(Told, FileNotFoundError):
    """A file that is not there."""


class TimeIsUp(Told):
    """A run in the engine took longer than it was given."""


class LaunchFailed(Told, RuntimeError):
    """A launch was refused, or its kernel did something wrong."""


class KernelInterrupted(KeyboardInterrupt):
    """A kernel was interrupted; it has been stopped, and everything else goes on."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]
