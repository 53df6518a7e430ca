"""Trained models behind HTTP: `elman serve RUN` and `elman.serve(model)`.

settings    every limit, with its default
run         starts a server: `process` in this one, `ray_serve` as replicas on a cluster
embedded    the application inside another program
protocol    HTTP connections: their number, time limits, sizes of headers
app         the ASGI application: middleware around the routes of `api/`
security    who may ask: Host, Origin, content type, token, size of bodies
requests    a request from its first to its last byte: id, time limit, log, metrics
models      which models there are: loaded on demand, unloaded, reloaded
predictor   one thread per model that answers whole texts, many requests at once
"""

from typing import TYPE_CHECKING

from elman.lazy import lazy_names

if TYPE_CHECKING:
    from elman.serving.embedded import application as application
__getattr__, __dir__ = lazy_names(__name__, __file__)
