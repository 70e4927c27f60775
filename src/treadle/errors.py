"""The errors a user meets; each says what was wrong, where, and a way out."""

from __future__ import annotations


class TreadleError(Exception):
    """Base of every error; `hint` is the way out."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message + (f"\n  help: {hint}" if hint else ""))
        self.message, self.hint = message, hint


class ConfigError(TreadleError):
    """An environment variable or option that cannot be read."""


class DeclarationError(TreadleError):
    """An operator or a lowering was declared wrongly; raised while tables are built."""


class OperatorError(TreadleError):
    """An operator was applied to operands or attributes that it does not accept.

    `sizes` are the two sizes that disagree, where that is what is wrong.
    """

    def __init__(self, message: str, *, hint: str = "", sizes: tuple[object, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.sizes = sizes


class ParseError(TreadleError):
    """Graph or dim text that does not parse."""


class VerifyError(TreadleError):
    """A graph that breaks a rule of the IR."""


class Declined(TreadleError):
    """A rule or lowering exists but cannot honour these attributes; the message says why."""


class ImportFailure(TreadleError):
    """A model file that cannot be read or is not a valid model; says where in the file."""


class UnsupportedError(ImportFailure):
    """A valid model that uses what is not supported; lists everything at once."""


class BindingError(TreadleError):
    """Inputs of a run that do not fit the signature; names the leaf, the given and the needed."""


class RunError(TreadleError):
    """A step failed while running; names the node and its source."""


class DeviceError(TreadleError):
    """A device that is not there, or cannot run this."""
