"""When the generated form runs, and why it does not elsewhere."""

from types import SimpleNamespace

import pytest
import torch
from cell_cases import cell_of
from torch import Tensor, nn

from elman.cells import Cell, PastProduct
from elman.compiler.triton.search import choose_partition
from elman.ops import kernel_timeout
from elman.recurrence import apart, compiled_triton, explain, explain_both, using


class CumulativeSum(Cell):
    name = "counting"

    def __init__(self) -> None:
        super().__init__(Cell.Config(hidden_size=4), 3)
        self.from_input, self.from_past = nn.Linear(3, 4), PastProduct(4, 1)

    def drive(self, x: Tensor) -> Tensor:
        return self.from_input(x)

    def step(self, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = (drive + self.from_past(state)).cumsum(-1)
        return new, new


def test_the_obstacle_names_the_operation_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    problem = compiled_triton.obstacle(CumulativeSum(), torch.zeros(2, 3, 3), None)
    assert problem == "counting cannot be compiled: its step uses cumsum, which the compiler does not support"


def test_on_a_cpu_the_generated_form_is_not_mentioned() -> None:
    assert explain(cell_of("lstm"), torch.zeros(2, 8, 3)) == "vendor: oneDNN LSTM"
    assert "CUDA" in (compiled_triton.obstacle(cell_of("lstm"), torch.zeros(2, 8, 3), None) or "")


def test_without_kernels_directions_run_one_after_the_other() -> None:
    x = torch.zeros(2, 8, 3)
    cells = cell_of("lstm"), cell_of("lstm")
    assert apart(*cells, x) == "the vendor form has no kernel for both directions"
    assert explain_both(*cells, x) == "vendor: oneDNN LSTM"
    with using("reference"):
        assert explain_both(*cells, x) == "reference: the plain loop, as asked"
    other = cell_of("gru", {"reset": "before"})
    told = explain_both(cells[0], other, x)
    assert told.startswith("vendor: oneDNN LSTM; back reference: ")


def test_two_directions_share_the_processors_and_a_search_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=100 * 1024, major=8)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: chip)
    searches = []

    def recorded(program, batch, itemsize, processors, shared, clusters):
        searches.append(processors)
        assert not clusters  # Ampere has none
        found = choose_partition(program, batch, itemsize, processors, shared, clusters)
        assert found.shared_bytes(program, itemsize) <= shared < 100 * 1024
        return found

    monkeypatch.setattr(compiled_triton.search, "choose_partition", recorded)
    compiled = compiled_triton.compiled_cell(cell_of("lstm", hidden_size=256))
    for directions in (1, 2, 1, 2):
        part = compiled.partition("forward", 64, torch.bfloat16, torch.device("cuda", 0), directions)
        assert directions * part.groups(64) * part.programs(256) <= 132
    assert searches == [132, 66]


def test_the_timeout_flag_is_read_on_the_cpu_whatever_the_default_device() -> None:
    """Catches the copy on the default device, where it cannot be pinned."""
    try:
        with torch.device("meta"):
            assert kernel_timeout.of(torch.device("cpu"))[1].device.type == "cpu"
    finally:
        kernel_timeout.ALARMS.clear()


def test_the_vendor_form_is_left_only_where_kernels_were_measured_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail on GPUs that were never measured, and for short sequences of cells without a vendor form."""

    def drawback(
        name: str, shape: tuple[int, int, int] = (64, 512, 256), dtype: torch.dtype = torch.bfloat16
    ) -> str | None:
        there = {"device": torch.device("cuda", 0), "shape": shape, "__len__": lambda self: shape[0]}
        x = type("OnGPU", (), there)()
        return compiled_triton.drawback(cell_of(name, hidden_size=shape[2]).to(dtype), x, None)

    monkeypatch.setattr(compiled_triton, "_capability", lambda device: 9)
    assert drawback("lstm") is None
    assert drawback("lstm", dtype=torch.float16) is None
    assert drawback("lstm", (16, 512, 256), torch.float16) is None
    assert "32 steps" in drawback("gru", (64, 31, 256))
    assert drawback("peephole", (64, 3, 64), torch.float32) is None
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert drawback("lstm", dtype=torch.float32) is None
    assert drawback("gru", (64, 512, 128), torch.float32) is None
    assert "64 units" in drawback("gru", (64, 512, 64), torch.float32)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    assert "without TF32" in drawback("lstm", dtype=torch.float32)
    assert drawback("peephole", dtype=torch.float32) is None
    monkeypatch.setattr(compiled_triton, "_capability", lambda device: 8)
    assert "Hopper" in drawback("peephole")
