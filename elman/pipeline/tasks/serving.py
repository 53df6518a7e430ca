"""How a server offers a task: the route that answers texts, and the form of an answer there."""

from typing import Any, ClassVar

Settings = dict[str, Any]


class TaskServing:
    """Answers of `predict` as `POST /<endpoint>` gives them."""

    endpoint: ClassVar[str] = "predict"
    """The route, of all models of the task; empty for models that are only asked to generate text."""
    gives_probabilities: ClassVar[bool] = False
    """Whether answers have probabilities unless a request says otherwise."""
    inputs: ClassVar[tuple[str, ...]]

    def served(self, answer: Settings) -> Settings:
        """An answer as an object of `data`, without what was asked."""
        return {name: value for name, value in answer.items() if name not in self.inputs}

    def served_facts(self) -> Settings:
        """What a reader of the answers must know, once for all of them."""
        return {}

    def count_tokens(self, answer: Settings) -> tuple[int, int]:
        """Tokens read and written for an answer."""
        return 0, 0
