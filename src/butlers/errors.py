"""The fault every other fault derives from: what went wrong, and what to do next."""

from typing import ClassVar, Literal

Code = Literal[
    "invalid_input",
    "not_found",
    "conflict",
    "already_exists",
    "forbidden",
    "unavailable",
    "overloaded",
    "timeout",
    "internal",
]


class Fault(Exception):
    """Something a caller can be told about; its text reads `code: message. hint`."""

    code: ClassVar[Code] = "internal"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = self.hint if hint is None else hint

    def __str__(self) -> str:
        said = f"{self.code}: {self.message.rstrip('.')}."
        return f"{said} {self.advice}" if self.advice else said


class InvalidInput(Fault):
    """The call can't be understood as it was sent."""

    code = "invalid_input"


class NotFound(Fault):
    """Nothing of that name or id is within the caller's reach."""

    code = "not_found"


class Conflict(Fault):
    """The state of things does not allow it."""

    code = "conflict"


class AlreadyExists(Fault):
    """Something else holds that name already."""

    code = "already_exists"


class Forbidden(Fault):
    """The caller may not do this."""

    code = "forbidden"


class Unavailable(Fault):
    """A part this call needs is not there right now."""

    code = "unavailable"
    hint = "Retry in a few seconds."


class SessionFailed(Unavailable):
    """A session was started and came to nothing: what it ran ended badly or answered nothing that can be used."""

    hint = "Look at what the runtime says when it is run by hand; `butlers doctor` checks whether it is there."


class Overloaded(Fault):
    """More work is under way than can be taken on."""

    code = "overloaded"
    hint = "Retry in a second, with fewer calls at once."


class TimedOut(Fault):
    """The work took longer than it may."""

    code = "timeout"
    hint = "Ask for less at once, or retry later."


class ConfigurationFault(Fault):
    """The butler can't start with this configuration."""

    code = "invalid_input"
