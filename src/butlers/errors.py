"""The base class of all faults, and the faults that every part may raise."""

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
    """An error to show to the caller; its text is `code: message. hint`."""

    code: ClassVar[Code] = "internal"
    hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        text = f"{self.code}: {self.message.rstrip('.')}."
        return f"{text} {self.hint}" if self.hint else text


class InvalidInput(Fault):
    """The input of the call is invalid."""

    code = "invalid_input"


class NotFound(Fault):
    """Nothing of that name or id exists in the caller's tenant."""

    code = "not_found"


class Conflict(Fault):
    """The current state does not allow the operation."""

    code = "conflict"


class AlreadyExists(Fault):
    """The name is taken already."""

    code = "already_exists"


class Forbidden(Fault):
    """The caller may not do this."""

    code = "forbidden"


class Unavailable(Fault):
    """A resource that the call needs is not available right now."""

    code = "unavailable"
    hint = "Retry in a few seconds."


class SessionFailed(Unavailable):
    """A session failed: its runtime ended with an error or gave no usable answer."""

    hint = "Run the runtime by hand to see its output; `butlers doctor` checks whether it is installed."


class Overloaded(Fault):
    """The butler is too busy to take the call."""

    code = "overloaded"
    hint = "Retry in a second, with fewer calls at once."


class TimedOut(Fault):
    """The work exceeded its time limit."""

    code = "timeout"
    hint = "Ask for less at once, or retry later."


class ConfigurationFault(Fault):
    """The butler can't start with this configuration."""

    code = "invalid_input"
