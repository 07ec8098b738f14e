"""What a request may be refused with, as the one exception that becomes an error object.

Not here: what is wrong with a path or a method as such, which the router answers with plain text (`router.py`).
"""

from collections.abc import Sequence

from common.config.problems import Problem
from webservice.views import ErrorView, ProblemView, encoded


class RequestError(Exception):
    """A request that gets an error object instead of what it asked for."""

    def __init__(self, status: int, text: str, *, problems: Sequence[Problem] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.problems = problems

    @property
    def body(self) -> bytes:
        """The error object."""
        problems = [
            ProblemView(line=one.line, path=one.path, message=one.message, hint=one.hint, kind=one.kind)
            for one in self.problems
        ]
        return encoded(ErrorView(status_code=self.status, message=self.text, description=self.text, problems=problems))
