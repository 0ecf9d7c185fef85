"""What the command line itself refuses."""


class RefusalError(Exception):
    """The command can't be carried out; the message is for who typed it."""
