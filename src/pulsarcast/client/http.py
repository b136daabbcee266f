"""Settings of httpx that both clients share, and the client's errors for those of httpx."""

from __future__ import annotations

import ssl
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx

from pulsarcast.client.calls import Ask
from pulsarcast.client.connect import Target
from pulsarcast.client.errors import Unreachable, is_passing
from pulsarcast.model.errors import LocalError, PulsarcastError, Refusal

ClientT = TypeVar("ClientT", httpx.Client, httpx.AsyncClient)

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
"""How long an answer may take; a replicated event's waits for other peers."""
SILENCE_S: Final = 45.0
"""How long a stream may be silent; a daemon says every 15 seconds that it is there."""
SAY_S_MAX: Final = 3.0
"""How long a subscription lets itself be held up by saying what is done."""

STREAM_TIMEOUT: Final = httpx.Timeout(SILENCE_S, connect=CONNECT_S, pool=None)
SAY_TIMEOUT: Final = httpx.Timeout(SAY_S_MAX)


def make(
    kind: type[ClientT],
    target: Target,
    *,
    answer_s: float,
    verify: ssl.SSLContext | bool,
    **more: Any,
) -> ClientT:
    """A client of httpx for a daemon."""
    headers = {"Authorization": f"Bearer {target.token}"} if target.token else {}
    # What is said to this machine goes through no proxy.
    local = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}
    # Reading the certificates of the system takes as long as many requests, and here none is shown.
    url = urlsplit(target.url)
    is_plain = url.scheme == "http" and url.hostname in ("127.0.0.1", "localhost", "::1")
    return kind(
        base_url=target.url,
        headers=headers,
        timeout=httpx.Timeout(answer_s, connect=CONNECT_S, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        verify=False if is_plain else verify,
        mounts=local,
        **more,
    )


def check_open(client: httpx.Client | httpx.AsyncClient) -> None:
    """Refuse a call of a client that was closed; it is no connection that may come back."""
    if client.is_closed:
        raise LocalError("the client is closed: make another one")


def build(client: httpx.Client | httpx.AsyncClient, ask: Ask[Any], **more: Any) -> httpx.Request:
    """A call as a request of httpx."""
    return client.build_request(
        ask.method,
        ask.path,
        params=ask.query or None,
        headers=dict(ask.headers),
        content=ask.body,
        **more,
    )


def unreachable(url: str, error: Exception) -> Unreachable:
    """What to do about a connection that does not work, in a sentence."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        why = f" ({error})" if str(error) else ""
        if "SSL" in str(error):
            advice = "check its certificate, or give http:// if it has none"
        else:
            advice = "check the URL, or start one with `pulsarcast daemon`"
        text = f"no daemon answers at {url}{why}: {advice}"
        return Unreachable(text, is_absent=True)
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"the daemon at {url} took too long to answer: try again")
    return Unreachable(
        f"the connection to {url} broke ({str(error) or type(error).__name__}): try again"
    )


def may_help(error: PulsarcastError, *, has_met: bool) -> bool:
    """Whether to try again; a daemon that was never there is not waited for."""
    is_absent = isinstance(error, Unreachable) and error.is_absent
    return is_passing(error) and (has_met or not is_absent)


def passing(url: str, error: BaseException) -> PulsarcastError:
    """What ended a stream, if it may be taken up again; else it is raised."""
    if isinstance(error, httpx.RequestError):
        return unreachable(url, error)
    if isinstance(error, PulsarcastError) and is_passing(error):
        return error
    raise error


def ended(url: str, why: Refusal | None) -> Unreachable:
    """A stream that the daemon ended."""
    said = "no reason given" if why is None else why.message
    return Unreachable(f"the daemon at {url} ended the stream ({said})")
