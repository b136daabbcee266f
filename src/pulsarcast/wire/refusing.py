"""Makes the error for bytes that a peer was not allowed to send."""

from pulsarcast.model.errors import Rejection, RemoteError, Verdict


def refusal(
    message: str, code: Rejection = Rejection.MALFORMED, verdict: Verdict = Verdict.REJECT
) -> RemoteError:
    """The error to raise for what a peer sent."""
    return RemoteError(message, verdict, code=code)
