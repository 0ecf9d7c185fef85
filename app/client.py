"""A client of Cleave's own HTTP API, for the command line, agents and whoever writes Python."""

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from app.schemas.catalog import ModelItemOut, ModelsOut, NamedModelOut
from app.schemas.nodes import BeatOut, NodeOut, NodesOut
from app.schemas.parsing import Out
from app.schemas.plans import PlanItemOut, PlanOut, PlansOut

DEFAULT_URL = "http://127.0.0.1:8000"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
JSON, TEXT, PROBLEM = "application/json", "text/plain", "application/problem+json"
MORE = "\nmore: ?cursor="
"""What a table of the server ends with where there is another page."""

Answer = TypeVar("Answer", bound=Out)
Page = TypeVar("Page", NodesOut, ModelsOut, PlansOut)
Body = Mapping[str, Any] | bytes
Query = Mapping[str, str | None]


class ProblemError(Exception):
    """The server refused.

    ``text`` is what a person reads: the server's own words where they were asked for as text. ``document`` is the
    problem as it came, empty where it came as text; ``name``, ``title`` and ``detail`` are taken from it.
    """

    def __init__(self, status: int, document: Mapping[str, Any], text: str) -> None:
        """Of an answer with an error status."""
        super().__init__(text)
        self.status = status
        self.document = document
        self.text = text
        self.name = str(document.get("type", "")).rpartition("/")[2]
        self.title = str(document.get("title", ""))
        self.detail = str(document.get("detail", ""))


class UnreachableError(Exception):
    """No Cleave answers at the URL: nobody, or somebody else."""


class Client:
    """Calls one server; usable as a context manager. Every call raises ProblemError and UnreachableError."""

    def __init__(self, base_url: str = DEFAULT_URL, *, timeout_s: float = 30.0) -> None:
        """Nothing is sent yet. Raises UnreachableError for what is no URL.

        A proxy that the environment names can't reach this machine's own loopback, so it isn't asked there.
        """
        try:
            url = httpx.URL(base_url)
            if url.scheme not in {"http", "https"}:
                raise UnreachableError(f"{base_url!r} is no URL of a server: it starts with http:// or https://")
            local = url.host in LOOPBACK
            self._http = httpx.Client(base_url=base_url, timeout=timeout_s, trust_env=not local)
        except (httpx.InvalidURL, ImportError, ValueError) as error:  # the latter two: a proxy of an unusable kind
            raise UnreachableError(f"can't call {base_url!r}: {error}") from None

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
        return self._get(BeatOut, "POST", "/nodes/register", body=report)

    def node(self, node_id: str) -> NodeOut:
        """One node."""
        return self._get(NodeOut, "GET", f"/nodes/{quote(node_id, safe='')}")

    def nodes(self, **wanted: str | None) -> Iterator[NodeOut]:
        """All nodes that match ``state``, ``label`` and ``device``, page by page."""
        for page in self._pages(NodesOut, "/nodes", wanted):
            yield from page.nodes

    def tables(self, path: str, **wanted: str | None) -> Iterator[str]:
        """A list, ``/nodes`` or ``/models``, as the server's tables, one a page."""
        cursor: str | None = None
        while cursor != "":
            text = self.raw("GET", path, as_json=False, query={**wanted, "cursor": cursor})
            table, _, cursor = text.partition(MORE)
            cursor = cursor.strip()
            yield table

    def plan(self, request: Mapping[str, Any]) -> PlanOut:
        """Plan on the server's registry."""
        return self._get(PlanOut, "POST", "/plan", body=request)

    def simulate(self, request: Mapping[str, Any]) -> PlanOut:
        """Plan on the nodes in the request."""
        return self._get(PlanOut, "POST", "/plan/simulate", body=request)

    def models(self, **wanted: str | None) -> Iterator[ModelItemOut]:
        """The named models in order of names, page by page."""
        for page in self._pages(ModelsOut, "/models", wanted):
            yield from page.models

    def model(self, name: str) -> NamedModelOut:
        """One named model."""
        return self._get(NamedModelOut, "GET", self.model_path(name))

    @staticmethod
    def model_path(name: str) -> str:
        """Where a named model is."""
        return f"/models/{quote(name, safe='')}"

    def delete_model(self, name: str) -> None:
        """Forget a named model."""
        self._call("DELETE", self.model_path(name), JSON, None, {})

    def put_model(self, name: str, said: Mapping[str, Any]) -> NamedModelOut:
        """Name a model's cost, or what it follows from: see ``PUT /models/{name}``."""
        return self._get(NamedModelOut, "PUT", self.model_path(name), body=said)

    def plans(self, **wanted: str | None) -> Iterator[PlanItemOut]:
        """The recent plans, newest first, page by page."""
        for page in self._pages(PlansOut, "/plans", wanted):
            yield from page.plans

    def raw(
        self, method: str, path: str, *, as_json: bool, body: Body | None = None, query: Query | None = None
    ) -> str:
        """An answer as it is: JSON, or the server's own table. A body of bytes is sent as it stands."""
        return self._call(method, path, JSON if as_json else TEXT, body, query or {}).decode()

    def _pages(self, kind: type[Page], path: str, wanted: Query) -> Iterator[Page]:
        page = self._get(kind, "GET", path, query=wanted)
        yield page
        while page.next_cursor is not None:
            page = self._get(kind, "GET", path, query={**wanted, "cursor": page.next_cursor})
            yield page

    def _get(
        self, kind: type[Answer], method: str, path: str, *, body: Body | None = None, query: Query | None = None
    ) -> Answer:
        raw = self._call(method, path, JSON, body, query or {})
        try:
            return kind.model_validate_json(raw)
        except ValueError:
            message = f"{self._http.base_url} answers {path} unlike this version of Cleave; is it another?"
            raise UnreachableError(message) from None

    def _call(self, method: str, path: str, accept: str, body: Body | None, query: Query) -> bytes:
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": JSON})
        content = (
            json.dumps(dict(body)).encode() if isinstance(body, Mapping) else body
        )  # what is no JSON, the server says
        params = {key: value for key, value in query.items() if value is not None}
        try:
            answer = self._http.request(method, path, params=params, content=content, headers=headers)
        except (httpx.RequestError, httpx.InvalidURL) as error:
            message = f"no server answers at {self._http.base_url} ({error}); start one with: cleave serve"
            raise UnreachableError(message) from None
        came_as = answer.headers.get("content-type", "").partition(";")[0]
        if answer.is_success and (came_as == accept or answer.status_code == httpx.codes.NO_CONTENT):
            return answer.content
        if not answer.is_success and came_as in {PROBLEM, accept}:
            raise ProblemError(answer.status_code, _document(answer) if came_as == PROBLEM else {}, answer.text)
        message = f"{answer.url} answers {answer.status_code} with {came_as or 'nothing'}: a proxy, or no Cleave"
        raise UnreachableError(message)


def _document(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
