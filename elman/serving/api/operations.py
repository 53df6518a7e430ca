"""Routes for operators and tools: health, models, metrics, tokenizers."""

from typing import Any

from fastapi.responses import JSONResponse

from elman.serving.api.routing import Serving, router
from elman.serving.models import OWNER, Entry

api = router()


@api.get("/health")
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
    return {"id": entry.id, "object": "model", "created": entry.created, "owned_by": OWNER}
