"""The page at `/`: plain HTML without scripts, which asks no other server for anything."""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape

from elman.serving.api.routing import routes_of
from elman.serving.models import Entry

STYLE = "body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}"
STYLE += "pre{white-space:pre-wrap;overflow-wrap:anywhere}"
HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{HASH}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def curl(address: str, route: str, model: str, needs_token: bool) -> str:
    """A command that asks a model something."""
    body = {"model": model, **({"prompt": "Once"} if route.startswith("/v1/") else {"input": "a text"})}
    token = ' -H "Authorization: Bearer $TOKEN"' if needs_token else ""
    quoted = json.dumps(body).replace("'", "'\\''")
    return f"curl {address.rstrip('/')}{route}{token} -H 'Content-Type: application/json' -d '{quoted}'"


def help_page(address: str, entries: Sequence[Entry], needs_token: bool) -> str:
    rows = [
        f"<li><code>{escape(entry.id)}</code> ({escape(entry.task.name)}): {escape(', '.join(routes_of(entry)))}</li>"
        for entry in entries
    ]
    firsts: dict[str, str] = {}  # one model for each route
    for entry in entries:
        firsts.setdefault(routes_of(entry)[0], entry.id)
    commands = [curl(address, route, id, needs_token) for route, id in firsts.items()]
    if not entries:
        commands = [f'curl {address}v1/models -H "Authorization: Bearer $TOKEN"']
    shown = "".join(f"<pre>{escape(command)}</pre>" for command in commands)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>elman</title>'
        f"<style>{STYLE}</style></head><body><h1>elman</h1><p>Trained sequence models.</p><ul>{''.join(rows)}</ul>"
        f"<h2>{'Ask' if entries else 'Ask for the models'}</h2>{shown}"
        "<p><code>GET /openapi.json</code> describes every route.</p></body></html>"
    )
