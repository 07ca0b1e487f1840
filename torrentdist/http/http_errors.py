"""The ways in which a request can end without an answer.

Each class tells how much of the request may have been carried out, because that decides whether it
may be sent again.
"""


class HttpError(Exception):
    """There is no answer, or none that is sound HTTP. The request may have been carried out."""


class InvalidUrl(HttpError):
    """The URL or a header cannot be used. Nothing was sent."""


class ConnectError(HttpError):
    """There is no connection. Nothing was sent."""


class NotTrusted(ConnectError):
    """The server cannot prove what it is, or must not get what the request carries. Nothing was
    sent.
    """


class ConnectTimeout(ConnectError):
    """The connection was not made in time. Nothing was sent."""


class AnswerTimeout(HttpError):
    """The other side was silent for too long. The request may have been carried out."""


class AnswerTooLarge(HttpError):
    """The answer has more bytes than the caller accepts. The request may have been carried out."""
