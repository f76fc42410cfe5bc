"""What the shipped HTTP tools share: asking a JSON service and reading its answer with care.

The status is looked at before the body; a 429 is waited for once if the service says how long and it
is short; a body that is not JSON is an error that names its type (cases 102, 111).
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from assistant_runner import __version__
from assistant_runner.retries import wait_hint
from assistant_runner.tooling.contract import HttpReply, ToolContext, ToolFailure

USER_AGENT = f"assistant-runner/{__version__} (tools of a command-line assistant; httpx/{httpx.__version__})"
LONGEST_WAIT_S = 10.0
EXCERPT_CHARACTERS = 300


async def get_json(
    context: ToolContext,
    url: str,
    params: Mapping[str, str | int | float],
    *,
    service: str,
    error_statuses: tuple[int, ...] = (),
    secret: bool = False,
) -> tuple[httpx.Response, Any]:
    """The response and its JSON body; ToolFailure in words for everything else.

    `error_statuses`: statuses whose JSON body the caller reads itself. `service`: its name in messages.
    `secret`: the address holds a key, so neither it nor the answer is kept in a cache.
    """
    headers = {"user-agent": USER_AGENT, "accept": "application/json"}
    if secret:
        headers["cache-control"] = "no-store"
    waited = False
    while True:
        try:
            response = await context.http.get(url, params=dict(params), headers=headers)
        except httpx.TimeoutException:
            raise ToolFailure(f"{service} did not answer in time", transient=True) from None
        except httpx.TransportError as error:
            words = str(error) or type(error).__name__
            raise ToolFailure(f"{service} cannot be reached: {words}", transient=True) from None
        pause_s = retry_after_s(response)
        if response.status_code == 429 and not waited and pause_s is not None and pause_s <= LONGEST_WAIT_S:
            waited = True
            await asyncio.sleep(pause_s)
            continue
        break
    if response.status_code >= 400 and response.status_code not in error_statuses:
        words = f"{service} answered {response.status_code} {response.reason_phrase}".strip()
        again = response.status_code == 429 or response.status_code >= 500
        hint = "trying again later can help" if again else "the same request will fail again"
        raise ToolFailure(f"{words}: {excerpt(response)}", hint=hint, transient=response.status_code >= 500)
    try:
        return response, response.json()
    except ValueError:
        kind = response.headers.get("content-type", "no type").split(";")[0]
        raise ToolFailure(
            f"{service} answered {response.status_code} with {kind} instead of JSON: {excerpt(response)}"
        ) from None


def reply_of(response: httpx.Response, entity: Any) -> HttpReply:
    """The whole reply of a tool (row S1.23) with the entity that it stands for."""
    kept = ("content-type", "date", "last-modified", "etag", "x-recorded")
    return HttpReply(
        http_version=response.http_version,
        status_code=response.status_code,
        status_text=response.reason_phrase,
        headers={name: response.headers[name] for name in kept if name in response.headers},
        entity=entity,
    )


def excerpt(response: httpx.Response) -> str:
    """The beginning of a body on one line."""
    return " ".join(response.text.split())[:EXCERPT_CHARACTERS] or "(empty)"


def short(value: Any) -> str:
    """The beginning of a JSON value, for messages."""
    return json.dumps(value, ensure_ascii=False)[:EXCERPT_CHARACTERS]


def retry_after_s(response: httpx.Response) -> float | None:
    """How long the service asks us to wait, in seconds."""
    return wait_hint(response.headers, "")
