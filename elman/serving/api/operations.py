"""Routes for operators: health, the list of models, figures for Prometheus, a page of help."""

from typing import Any

from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from elman.serving.api.help_page import POLICY, help_page
from elman.serving.api.routing import Serving, router, routes_of
from elman.serving.models import OWNER, Entry

api = router()


@api.get("/health", responses={503: {"description": "Loading or ending"}})
async def health(server: Serving) -> JSONResponse:
    """200 once all models that fit into memory are loaded; 503 while they are, and while the server ends."""
    state = "ending" if server.request.app.state.ending else "ok" if server.pool.ready else "loading"
    return JSONResponse({"status": state}, 200 if state == "ok" else 503)


@api.get("/v1/models")
async def models(server: Serving) -> dict[str, Any]:
    """All models, loaded or not."""
    return {"object": "list", "data": [card(entry) for entry in server.pool.entries]}


@api.get("/v1/models/{id:path}")
async def model(id: str, server: Serving) -> dict[str, Any]:
    return card(server.pool.entry(id))


def card(entry: Entry) -> dict[str, Any]:
    own = {"task": entry.task.name, "routes": routes_of(entry), "loaded": entry.served is not None}
    return {"id": entry.id, "object": "model", "created": entry.created, "owned_by": OWNER, **own}


@api.get("/metrics", response_class=PlainTextResponse)
async def metrics(server: Serving) -> Response:
    return Response(server.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@api.get("/", response_class=HTMLResponse)
async def page(server: Serving) -> HTMLResponse:
    """How to ask; the models only for those who have a token."""
    entries = server.pool.entries if server.owner else []
    text = help_page(str(server.request.base_url), entries, needs_token=not server.anonymous)
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})
