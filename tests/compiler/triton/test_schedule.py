"""Stages of a step and the exchanges between them."""

import pytest
from cell_cases import CASES, cell_of

from elman.compiler.ir import mask_finished_rows
from elman.compiler.triton.schedule import schedule
from elman.recurrence import compiled_triton

EXCHANGES = {"lstm": 1, "gru": 1, "rnn": 1, "coupled": 1, "gated": 1, "residual": 1, "peephole": 1, "layernorm-lstm": 3}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_step_has_as_few_exchanges_as_possible(name: str) -> None:
    compiled = compiled_triton.compiled_cell(cell_of(name))
    assert schedule(compiled.step).exchanges == EXCHANGES[name]
    assert schedule(compiled.adjoint.program).exchanges == EXCHANGES[name]
    assert schedule(compiled.step, single=True).exchanges == 0


def test_products_of_values_of_the_same_step_need_another_exchange() -> None:
    for case in (("gru", {"reset": "before"}), ("peephole", {"form": "full"})):
        compiled = compiled_triton.compiled_cell(cell_of(*case))
        assert schedule(compiled.step).exchanges == schedule(compiled.adjoint.program).exchanges == 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nodes_are_computed_before_use_and_stored_once(case) -> None:
    compiled = compiled_triton.compiled_cell(cell_of(*case))
    for program in (compiled.step, compiled.adjoint.program, mask_finished_rows(compiled.step)):
        plan = schedule(program, program.outputs)
        done: set[int] = set()
        stored: list[int] = []
        for stage in plan.stages:
            for index in (*stage.critical, *stage.overlapped):
                assert set(program.nodes[index].args) <= done
                done.add(index)
            stored += [*stage.published, *stage.saved]
        assert sorted(stored) == sorted(plan.stored)
        assert set(program.results()) <= done
