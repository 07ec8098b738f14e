"""What a request may be refused with, as the one exception that becomes an error object.

Not here: what is wrong with a path or a method as such, which the router answers with plain text (`router.py`).
"""

from webservice.views import ErrorView, encoded


class RequestError(Exception):
    """A request that gets an error object instead of what it asked for."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text

    @property
    def body(self) -> bytes:
        """The error object."""
        return encoded(ErrorView(status_code=self.status, message=self.text, description=self.text))
