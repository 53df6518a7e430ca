"""FLOPs per training unit, counted while a model trains on a batch of its data.

A multiplication counts as two operations, with the addition that nearly always follows: those of matrix products as
torch's own counter has them, and elementwise ones, of which a scan consists.
"""

from copy import deepcopy
from typing import Any

from elman.inspection.cost import count, measure
from elman.models.stack import Block, count_parameters

PER_PRODUCT = 2  # a multiplication and an addition


def training_flops(model: Any, batch: Any) -> float:
    """Of forward and backward, per unit of the batch (a token, a text, a word), padding included.

    In double precision, where no fused kernel hides its products.
    """
    twin = deepcopy(model).double().train()

    def step() -> None:
        loss, _ = twin.batch_loss(batch, None)
        loss.backward()

    return PER_PRODUCT * count(step) / batch.real


def layer_costs(model: Any, length: int) -> list[dict[str, Any]]:
    """For each layer from bottom to top: FLOPs per position of a row of that length, for training and for a step."""
    costs = []
    for block in (part for part in model.modules() if isinstance(part, Block)):
        layer: Any = deepcopy(block.layer)
        found = measure(layer, length)
        stepping = None if found.stepping is None else PER_PRODUCT * found.stepping
        costs.append(
            {
                "layer": block.kind,
                "parameters": count_parameters(layer),
                "training_flops": PER_PRODUCT * found.training,
                "stepping_flops": stepping,
                "state": found.state,
            }
        )
    return costs
