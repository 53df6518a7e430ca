"""Errors as clients see them, in OpenAI's shape: `{"error": {message, type, param, code}}`.

A message never has a path of this machine, a traceback or a token; what is unexpected is an id that the log explains.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from elman.errors import ConfigError, DataError, ElmanError, brief, nearest

FORMS = 4  # forms of a field that an error lists
LONGEST, LONGEST_NAME = 1600, 100  # bytes of a message and of a name: a body is at most 4 KB with quotes escaped
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
RETRY = {"Retry-After": "1"}


class ErrorFacts(BaseModel):
    """What every error says, for the description of the API."""

    message: str
    type: str
    param: str | None
    """The field that is wrong."""
    code: str | None


class ApiError(HTTPException):
    """An answer other than success: `raise ApiError(400, "n is 99, but at most 16 are allowed", param="n")`."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(status, message, dict(headers or {}))
        self.message, self.param, self.code = message, param, code
        self.type = type or TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")

    def body(self) -> dict[str, Any]:
        texts = {"type": self.type, "param": self.param, "code": self.code}
        parts = {name: printable(text, LONGEST_NAME) if text else None for name, text in texts.items()}
        return {"error": {"message": printable(self.message, LONGEST), **parts}}

    def json(self) -> bytes:
        """The body in UTF-8."""
        return bytes(self.response().body)

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status_code, self.headers)


def printable(text: str, most: int) -> str:
    """A text without control characters and unpaired surrogates, of so many bytes at most."""
    plain = "".join(one if one.isprintable() else " " for one in text).encode("utf-8", "replace")
    return plain.decode() if len(plain) <= most else f"{plain[:most].decode('utf-8', 'ignore')}…"


def too_busy(what: str) -> ApiError:
    """429: a bounded queue is full."""
    return ApiError(429, f"{what}; try again in a second", code="queue_full", headers=RETRY)


def unknown_model(name: str, known: Sequence[str]) -> ApiError:
    listed = ", ".join(known[:50])
    message = f"no model {brief(name)} is served here{nearest(name, known)}; known: {listed}"
    return ApiError(404, message, param="model", code="model_not_found")


def unexpected(request_id: str) -> ApiError:
    return ApiError(500, f"internal error; the server's log explains request {request_id}", code="internal_error")


def of_user_input(error: ElmanError) -> ApiError | None:
    """400 for an error that what the client sent has caused; None for one of the server's own files."""
    if isinstance(error, DataError):
        return None if error.file is not None else ApiError(400, str(error))
    return ApiError(400, str(error)) if isinstance(error, ConfigError) else None


def of_validation(error: RequestValidationError) -> ApiError:
    """400 that names the field, what was given and what would work."""
    problems = error.errors()
    problem = problems[0]
    path = [str(part) for part in problem["loc"][1:]]  # the first part says body, query or path
    forms = [one for one in problems if one["loc"][:2] == problem["loc"][:2]]
    if len(forms) > 1:  # of a field that takes values of several forms, each of which has its own problem
        path = path[:1]
    name, given = ".".join(path), brief(problem.get("input"))
    messages = [one["msg"].removeprefix("Value error, ").removeprefix("Input ") for one in forms]
    message = ", or ".join(dict.fromkeys(one[:1].lower() + one[1:] for one in messages[:FORMS]))
    if problem["type"] == "json_invalid":
        return ApiError(400, f"the body is no JSON: {problem['ctx']['error']}")
    if problem["type"] == "missing":
        text = f"{name or 'the body'}: is required" + ("; send a JSON object" if not name else "")
    elif problem["type"] == "extra_forbidden":
        text = f"unknown field {name!r}; leave it out"
    else:
        text = f"{name or 'the body'}: {message}, but got {given}"
    return ApiError(400, text, param=name or None)


async def answer_validation(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return of_validation(error).response()


async def answer_http(request: Request, error: Exception) -> JSONResponse:
    """For `ApiError`, and for what routing itself raises."""
    assert isinstance(error, HTTPException)
    if isinstance(error, ApiError):
        return error.response()
    path = brief(request.scope["path"])
    messages = {
        404: f"there is no {path}; GET /openapi.json lists what there is",
        405: f"{path} does not take {request.method}; GET /openapi.json lists what it takes",
    }
    message = messages.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, message, headers=error.headers).response()


async def answer_elman(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ElmanError)
    found = of_user_input(error)
    if found is None:
        raise error  # to the middleware that logs it
    return found.response()


HANDLERS: dict[Any, Any] = {
    RequestValidationError: answer_validation,
    HTTPException: answer_http,
    ElmanError: answer_elman,
}
