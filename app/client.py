"""A client of Cleave's own HTTP API, for the command line, agents and whoever writes Python."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from app.schemas.nodes import BeatOut, NodeOut, NodesOut
from app.schemas.plans import PlanOut

DEFAULT_URL = "http://127.0.0.1:8000"
TEXT = {"Accept": "text/plain"}


class ProblemError(Exception):
    """The server refused. ``document`` is the problem as it came, ``text`` what a person reads."""

    def __init__(self, status: int, document: Mapping[str, Any], text: str) -> None:
        """Of an answer with an error status."""
        super().__init__(text)
        self.status = status
        self.document = document
        self.text = text


class UnreachableError(Exception):
    """No server answers at the URL."""


class Client:
    """Calls one server; usable as a context manager. Every call raises ProblemError and UnreachableError."""

    def __init__(self, base_url: str = DEFAULT_URL, *, timeout_s: float = 30.0) -> None:
        """Nothing is sent yet."""
        self._http = httpx.Client(base_url=base_url, timeout=timeout_s)

    def __enter__(self) -> Self:
        """This client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        self._http.close()

    def register(self, report: Mapping[str, Any]) -> BeatOut:
        """Report a node."""
        return BeatOut.model_validate_json(self._call("POST", "/nodes/register", json=report))

    def nodes(self, **wanted: str | None) -> Iterator[NodeOut]:
        """All nodes that match ``state``, ``label`` and ``device``, page by page."""
        cursor: str | None = None
        while True:
            page = NodesOut.model_validate_json(self._call("GET", "/nodes", params={**wanted, "cursor": cursor}))
            yield from page.nodes
            cursor = page.next_cursor
            if cursor is None:
                return

    def plan(self, request: Mapping[str, Any]) -> PlanOut:
        """Plan on the server's registry."""
        return PlanOut.model_validate_json(self._call("POST", "/plan", json=request))

    def simulate(self, request: Mapping[str, Any]) -> PlanOut:
        """Plan on the nodes in the request."""
        return PlanOut.model_validate_json(self._call("POST", "/plan/simulate", json=request))

    def raw(self, method: str, path: str, *, as_json: bool, **options: Any) -> str:
        """An answer as it is: JSON, or the server's own table."""
        return self._call(method, path, headers=None if as_json else TEXT, **options).decode()

    def _call(self, method: str, path: str, **options: Any) -> bytes:
        params = {key: value for key, value in (options.pop("params", None) or {}).items() if value is not None}
        try:
            answer = self._http.request(method, path, params=params, **options)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            message = f"no server answers at {self._http.base_url} ({error}); start one with: cleave serve"
            raise UnreachableError(message) from None
        if answer.is_success:
            return answer.content
        is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
        raise ProblemError(answer.status_code, answer.json() if is_problem else {}, answer.text)
