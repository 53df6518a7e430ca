"""What a token costs in floating point operations: counted by torch while a model trains on a batch of its own data.

Counted are products, two operations each, since nearly all of them stand in a sum: those of matrices as torch's own
counter has them, and those of single numbers, in which a scan does its work.
"""

from copy import deepcopy
from typing import Any

from elman.inspection.cost import count, measure
from elman.models.stack import Block, count_parameters

PER_PRODUCT = 2  # a multiplication and an addition


def training_flops(model: Any, batch: Any) -> float:
    """Forward and backward, for each unit of the batch (a token, a text, a word): padding is paid for by the rest.

    In double precision, where no fused kernel hides its products.
    """
    twin = deepcopy(model).double().train()

    def step() -> None:
        loss, _ = twin.batch_loss(batch, None)
        loss.backward()

    return PER_PRODUCT * count(step) / batch.real


def layer_costs(model: Any, length: int) -> list[dict[str, Any]]:
    """Every layer from bottom to top by itself, on a row of such a length: flops per position, to train and to step."""
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
