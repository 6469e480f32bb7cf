"""The admin API as its clients call it: JSON over HTTP, and two kinds of failure."""

import json
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8402"
URL_VARIABLE = "SURGETANK_URL"
TOKEN_VARIABLE = "SURGETANK_ADMIN__TOKEN"


class Unreachable(Exception):
    """Nothing that speaks the admin API answers there."""


class ApiError(Exception):
    """The admin API said no: its HTTP status, its code for the reason, str() its sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AdminClient:
    """One call per request, no connection kept; blocking, so use a thread inside a loop."""

    def __init__(
        self, url: str | None = None, token: str | None = None, timeout: float = 5.0
    ) -> None:
        self.url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE, "")
        self._timeout = timeout

    def get(self, path: str) -> Any:
        """GET, decoded."""
        return self._call("GET", path, None)

    def put(self, path: str, body: dict[str, Any]) -> Any:
        """PUT a JSON object."""
        return self._call("PUT", path, body)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """POST a JSON object."""
        return self._call("POST", path, body)

    def delete(self, path: str, body: dict[str, Any]) -> Any:
        """DELETE with a JSON object that says who and why."""
        return self._call("DELETE", path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        headers = {"accept": "application/json"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["content-type"] = "application/json"
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            request = urllib.request.Request(
                self.url + path, data=data, headers=headers, method=method
            )
            with _opener.open(request, timeout=self._timeout) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, *_said(error)) from error
        except (OSError, HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            said = getattr(cause, "strerror", None) or cause
            raise Unreachable(f"no admin API at {self.url}: {said}") from error


# The operator's proxy settings are for the internet, not for a listener on loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _said(error: urllib.error.HTTPError) -> tuple[str, str]:
    """Code and sentence of the API's error body, or the status line of something else."""
    body = error.read()
    try:
        said = json.loads(body)["error"]
        return str(said["code"]), str(said["message"])
    except (ValueError, KeyError, TypeError):
        return "failed", f"HTTP {error.code} {error.reason}"
