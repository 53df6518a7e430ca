"""Trained models behind HTTP: `elman serve RUN` and `elman.serve(model)`.

settings    every limit, with its default
run         the process: address, token, start and orderly stop
protocol    HTTP connections: their number, time limits, sizes of headers
app         the ASGI application: middleware around the routes of `api/`
security    who may ask: Host, Origin, content type, token, size of bodies
requests    a request from its first to its last byte: id, time limit, log, metrics
models      which models there are: loaded on demand, unloaded, reloaded
predictor   one thread per model that answers whole texts, many requests at once
"""
