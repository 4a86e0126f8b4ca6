"""The control plane's API as the one-machine runtime and its smoke checks use it."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import aiohttp

MAX_ANSWER_BYTES: Final = 64 << 20
PAGE: Final = 500


class ApiError(Exception):
    """The control plane refuses, or cannot be reached; the text says why."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """0 = nobody answered."""


class Reply(NamedTuple):
    """Status and decoded body, None when there is none."""

    status: int
    body: Any


class Api:
    """Calls as the administrator of this machine."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str = "") -> None:
        self._session = session
        self._url = f"{url}/api/v1/"
        self.token = token

    async def ask(
        self, method: str, path: str, body: Any = None, *, version: str | None = None, text: str | None = None
    ) -> Reply:
        """One call, whatever the status; ``text`` is YAML. `ApiError` when nobody answers."""
        headers = {"Authorization": f"Bearer {self.token}", "X-Pointsman-Channel": "automation"}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        data = None
        if text is not None or body is not None:
            headers["Content-Type"] = "application/json" if text is None else "application/yaml"
            data = text or json.dumps(body)
        try:
            async with self._session.request(
                method, self._url + path, data=data, headers=headers, allow_redirects=False
            ) as answer:
                found = await answer.content.read(MAX_ANSWER_BYTES)
                while chunk := await answer.content.read(MAX_ANSWER_BYTES - len(found)):
                    found += chunk
                return Reply(answer.status, json.loads(found) if found else None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(f"the control plane does not answer: {error!r}") from None

    async def call(self, method: str, path: str, body: Any = None, *, text: str | None = None) -> Any:
        """The body of an answer that grants what was asked. `ApiError`."""
        reply = await self.ask(method, path, body, text=text)
        if reply.status >= 400:
            raise ApiError(refusal(reply), reply.status)
        return reply.body

    async def rows(self, plural: str) -> list[dict[str, Any]]:
        """All objects of a kind, which may have a query. `ApiError`."""
        mark = "&" if "?" in plural else "?"
        found: list[dict[str, Any]] = []
        while True:
            page = await self.call("GET", f"{plural}{mark}limit={PAGE}&offset={len(found)}")
            found += page["items"]
            if not page["items"] or len(found) >= page["total"]:
                return found


async def answers(api: Api) -> bool:
    """Whether the control plane takes the token."""
    try:
        return (await api.ask("GET", "whoami")).status == 200
    except ApiError:
        return False


def refusal(reply: Reply) -> str:
    """What the API says against a call, in one line."""
    body = reply.body if isinstance(reply.body, Mapping) else {}
    details = [f"{each.get('path')}: {each.get('message')}" for each in body.get("details", [])]
    return "; ".join(details) or str(body.get("message", f"HTTP {reply.status}"))
