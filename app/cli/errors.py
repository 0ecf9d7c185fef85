"""What the command line itself refuses."""

USAGE = 2
"""The exit code for what was said wrongly, as other commands have it."""


class RefusalError(Exception):
    """The command can't be carried out; the message is for who typed it."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        """With the code that the process ends with."""
        super().__init__(message)
        self.exit_code = exit_code
