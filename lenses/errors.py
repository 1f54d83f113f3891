"""What can go wrong, said in one sentence each: what, where, and what to do.

Every error that a user can mend derives from `LensesError`; the command line prints its text on one
line and the app shows it in place. Anything else is a defect of ours and keeps its traceback.
"""


class LensesError(Exception):
    """Something that the user can mend; the text says what, where, and what to do."""


class UnknownModel(LensesError):
    """The model could not be found, fetched or read."""


class UnsupportedModel(LensesError):
    """The model was read, but its numbers could not be proved to be its own."""


class NoRoom(LensesError):
    """There is not enough memory, for a model before it is loaded or for work that was begun.

    Of a model that is not loaded, `lacking` bytes more would have to be free on `device`.
    """

    def __init__(self, text: str, device: str = "", lacking: int = 0) -> None:
        super().__init__(text)
        self.device, self.lacking = device, lacking


class UnsupportedLens(LensesError):
    """This lens can't be computed on this model; the others can."""


class UnknownLens(LensesError):
    """No lens of that name is registered."""


class BadOption(LensesError):
    """A lens was given an option that does not exist or does not fit the model."""


class BadPrompt(LensesError):
    """The prompt, the target or the position can't be explained by this model."""


class BadPromptFile(LensesError):
    """A prompt list could not be read; the text names the line."""


class BadCorpus(LensesError):
    """The text that a tuned lens is to be fitted on can't be read, or is too short."""


class BadRun(LensesError):
    """A folder can't take this run: another one is in it, or its files can't be read."""


class NonFinite(LensesError):
    """A state or a readout is infinite or not a number; the text names the depth."""
