"""Errors that a handler raises."""


class PredictionException(Exception):
    """Raise it to choose the clients' status and text."""

    def __init__(self, message, error_code=500):
        self.message = message
        self.error_code = error_code
        super().__init__(message)

    def __str__(self):
        return f"{self.message} : {self.error_code}"
