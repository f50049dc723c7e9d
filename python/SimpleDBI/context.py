"""What programs written for SimpleDBI import from here."""

from SimpleDBI import EXIT_SIG

__all__ = ["EXIT_SIG"]
