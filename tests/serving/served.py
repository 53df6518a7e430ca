"""A server in this process and its client, each call of which runs the event loop until it is answered."""

import threading
from dataclasses import dataclass, field

from benchmarks.attack.in_process import ADDRESS, BEARER, OTHER, SECRET, TOKENS, Client

__all__ = ["ADDRESS", "BEARER", "OTHER", "SECRET", "TOKENS", "Client", "Gate", "error_of"]


@dataclass
class Gate:
    """Holds the thread that predicts until it is opened; `entered` says that the thread is there."""

    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    lines: list = field(default_factory=list)

    def hold(self, monkeypatch, trained):
        predict = trained.predict

        def held(lines, **more):
            self.lines.append(list(lines))
            self.entered.set()
            assert self.opened.wait(60)
            return predict(lines, **more)

        monkeypatch.setattr(trained, "predict", held)
        return self


def error_of(response):
    """The error of a response, whose shape is checked."""
    assert response.headers["content-type"] == "application/json"
    assert len(response.content) <= 4096
    (error,) = response.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert all(error[name] is None or isinstance(error[name], str) for name in ("type", "param", "code"))
    assert "Traceback" not in response.text
    assert SECRET not in response.text
    return error
