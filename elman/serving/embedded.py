"""The server as an ASGI application, inside another program: in tests, or below any ASGI server."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman.errors import ConfigError
from elman.serving.models import ModelPool
from elman.serving.run import check_packages
from elman.serving.settings import ServeConfig
from elman.serving.tokens import read_tokens

if TYPE_CHECKING:
    from fastapi import FastAPI

    from elman.pipeline import TrainedModel


def application(*models: "str | Path | TrainedModel", **settings: Any) -> "FastAPI":
    """Answers as `elman serve` does, with the same settings; a model is loaded when it is first asked for. Clients need
    a token of `token_file`, or none with `no_token=True`."""
    check_packages()
    from elman.serving.app import create_app

    config = ServeConfig.make(settings)
    if not config.no_token and config.token_file is None:
        raise ConfigError("who may ask? give token_file=FILE with their tokens, or no_token=True where nobody else can")
    pool = ModelPool(models, config)
    pool.ready = True
    return create_app(pool, config, read_tokens(config.token_file) if config.token_file else None)
