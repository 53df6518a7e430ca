"""Compiled single steps compute what torch computes, or raise an error with the reason.

Seen to fail: with a tanh without its part near zero, a last panel without its last result, a loop that went on after
a sum it depends on, eight bits without their zero, the matrix after the chosen one, a place too low among the
largest, threads that left a panel out, a step that wrote into its state, and one that left the processor without
subnormal numbers.
"""

import concurrent.futures
import itertools
import resource

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processes import environment, run_forked
from torch import nn
from torch.nn import functional as F

from elman.compiler.cpu import build
from elman.compiler.cpu.step import Runner, compile_step
from elman.compiler.cpu.step.buffers import Buffer
from elman.compiler.cpu.step.matmul import pack, packed_size
from elman.compiler.cpu.step.program import Part, _places
from elman.compiler.errors import CannotCompile, NoCompiler


class Function(nn.Module):
    """A layer without a past: some function of a vector."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def initial_state(self, batch):
        return ()

    def step(self, x, state):
        return self.function(x, *self.parts), ()


def run(layer, x, weights="fp32"):
    return Runner(compile_step(layer, weights, x), []).step(x).clone()


def check(layer, x, tolerance=1e-6, weights="fp32"):
    with torch.no_grad():
        expected = layer.step(x, ())[0]
    torch.testing.assert_close(run(layer, x, weights), expected, rtol=tolerance, atol=tolerance)


WIDE = torch.cat([torch.linspace(-100, 100, 4001), torch.logspace(-30, 0, 300), -torch.logspace(-30, 0, 300)])
EDGES = torch.tensor([0.0, -0.0, 88.72, 88.73, -87.3, -87.4, -1e4, 1e4, torch.inf, -torch.inf, torch.nan])


def test_scalar_functions_are_accurate_to_a_millionth():
    functions = [torch.exp, torch.tanh, torch.sigmoid, torch.relu, F.gelu, F.silu, F.softplus, torch.neg, torch.abs]
    layer = Function(lambda x: torch.stack([function(x) for function in functions], 1))
    x = torch.cat([WIDE, EDGES]).unsqueeze(0)
    with torch.no_grad():
        expected = layer.step(x, ())[0][0]
    for function, found, right in zip(functions, run(layer, x)[0], expected, strict=True):
        told = (right.abs() > 1.2e-38) | (right == 0) | right.isnan()  # denormals are flushed to zero
        rough = 1e-35
        if function is F.gelu:  # a product with 1 + erf, which nobody has better than to the last digit of 1
            told, rough = told & x[0].isfinite(), 2e-6
        torch.testing.assert_close(
            found[told], right[told], rtol=2e-6, atol=rough, equal_nan=True, msg=lambda m, f=function: f"{f}: {m}"
        )


@pytest.mark.parametrize("width", [90, 96])
def test_rows_of_a_table_in_eight_bits_are_rounded_to_their_own_scale(width):
    """Seen to fail: with the scale of the first row for all, and with rows that were not padded."""
    torch.manual_seed(0)
    table = nn.Embedding(200, width)
    table.weight.data *= torch.logspace(-3, 3, 200).unsqueeze(1)
    table.weight.data[7] = 0
    runner = Runner(compile_step(Function(lambda token, part: part(token), table), "int8", torch.tensor([0])), [])
    for token, row in ((0, 0), (7, 7), (199, 199), (200, 199), (2**62, 199), (-(2**62), 0)):  # others are clamped
        found, right = runner.step(torch.tensor([token]))[0], table.weight.detach()[row]
        assert bool(((found - right).abs() <= 0.501 * right.abs().max() / 127).all())


def test_gemv_of_any_size_equals_torch():
    sizes = [(1, 1), (3, 16), (5, 17), (64, 64), (7, 130), (130, 33), (33, 50), (2, 64)]
    torch.manual_seed(0)
    layers = [nn.Linear(inner, results, bias=results % 2 == 0) for inner, results in sizes]
    layer = Function(lambda x, *parts: torch.cat([part(x[:, : part.in_features]) for part in parts], 1), *layers)
    check(layer, torch.randn(1, 130), 1e-5)


def test_int8_gemv_is_within_its_rounding_error():
    torch.manual_seed(0)
    layers = [nn.Linear(inner, results) for inner, results in [(130, 129), (127, 257), (256, 64)]]
    layer = Function(lambda x, *parts: torch.cat([part(x[:, : part.in_features]) for part in parts], 1), *layers)
    x = torch.randn(1, 256)
    with torch.no_grad():
        expected = layer.step(x, ())[0]
    error = (run(layer, x, "int8") - expected).abs().max()
    assert 1e-5 < error < 0.03  # rounded, but no more than half a step of 256 inputs


@given(st.integers(1, 40), st.integers(1, 150), st.integers(0, 1000))
def test_packed_matrices_have_their_layout(inner, results, seed):
    matrix = torch.randn(inner, results, generator=torch.Generator().manual_seed(seed))
    packed, start, size = pack(matrix, "int8"), 0, -(-inner // 4) * 64
    for first in range(0, results, 16):
        weights = packed[start : start + size].view(torch.int8).view(-1, 16, 4).transpose(1, 2).reshape(-1, 16)
        scales = packed[start + size : start + size + 64].view(torch.float32)
        sums = packed[start + size + 64 : start + size + 128].view(torch.int32)
        assert torch.equal(weights.sum(0, dtype=torch.int32), sums)
        part = matrix[:, first : first + 16]
        found = (weights[:inner] * scales)[:, : part.shape[1]]
        assert ((found - part).abs() <= part.abs().amax(0) / 254 * 1.001).all()
        start += size + 128
    assert start == len(packed) == packed_size(inner, results, "int8")
    assert len(pack(matrix, "fp32")) == packed_size(inner, results, "fp32")


def test_views_reductions_and_where_equal_torch():
    def function(x):
        square = x.view(1, 6, 8)
        heads = square.transpose(1, 2)
        weights = heads.softmax(-1)
        scores = torch.einsum("bij,bkj->bik", weights, heads)
        norm = F.layer_norm(square, (8,))
        masked = torch.where(square > 0, square, -torch.inf).amax(2)
        window = x.unfold(1, 5, 3).sum(2)
        parts = [weights.flatten(1), scores.flatten(1), norm.flatten(1), masked, window, heads.mean((1, 2)).view(1, 1)]
        parts += [square.flatten(1)[:, ::2], x**3, x.std(1, keepdim=True), x.clamp(-1), x.clamp(max=0.5)]
        return torch.cat(parts, 1).clamp(-9, 9)

    torch.manual_seed(0)
    check(Function(function), torch.randn(1, 48), 1e-5)


def test_topk_equals_torch():
    def function(x):
        rows = x.view(1, 4, 10)
        parts = [rows.topk(3).values, rows.topk(10).values, rows.gather(-1, rows.topk(2).indices)]
        return torch.cat([*parts, rows.topk(1).indices.float()], -1)

    torch.manual_seed(0)
    x = torch.randn(1, 40)
    x[0, 5], x[0, 17] = torch.inf, -torch.inf
    check(Function(function), x)


class Table(nn.Module):
    """Matrices, of which the input chooses some; `also` reads those in another way."""

    def __init__(self, inner=130, columns=140, also=False):
        super().__init__()
        self.matrices, self.also = nn.Parameter(torch.randn(5, columns, inner)), also

    def initial_state(self, batch):
        return ()

    def step(self, x, state):
        picked = self.matrices[x[0, :5].topk(3).indices]
        products = torch.bmm(x.expand(3, 1, -1), picked.transpose(1, 2)).flatten(1)
        return products + picked.sum(2) if self.also else products, ()


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize(("weights", "tolerance"), [("fp32", 1e-4), ("int8", 0.5)])
def test_gathered_matrices_are_read_from_their_table(weights, tolerance, also):
    torch.manual_seed(0)
    layer, x = Table(also=also), torch.randn(1, 130)
    runner = Runner(compile_step(layer, weights, x), [])
    for _ in range(4):
        with torch.no_grad():
            expected = layer.step(x, ())[0]
        torch.testing.assert_close(runner.step(x), expected, rtol=tolerance, atol=tolerance)
        x = x.roll(1, 1)
    kept = {weight.format for weight in runner.program.lowered.weights}
    assert kept == ({weights, "plain"} if also else {weights})


def test_unsupported_operations_are_named():
    with pytest.raises(CannotCompile, match="cumsum is not supported"):
        run(Function(lambda x: x.cumsum(1)), torch.randn(1, 8))
    with pytest.raises(CannotCompile, match="topk of the smallest values"):
        run(Function(lambda x: x.topk(2, largest=False).values), torch.randn(1, 8))
    with pytest.raises(CannotCompile, match="cannot be traced: it reads the value of a tensor"):
        run(Function(lambda x: x * float(x.sum())), torch.randn(1, 8))
    with pytest.raises(CannotCompile, match="bfloat16 is not supported"):
        run(Function(lambda x: x * 2), torch.randn(1, 8).bfloat16())


def test_random_numbers_are_no_constants():
    """Catches: what depends on no input was computed before the first step, random numbers too."""
    with pytest.raises(CannotCompile, match=r"random numbers \(randn\)"):
        run(Function(lambda x: x + torch.randn(8, device=x.device)), torch.randn(1, 8))


def test_attributes_assigned_by_a_step_are_rejected_and_restored():
    """Catches: a counter stood still."""
    layer = Function(lambda x: setattr(layer, "count", layer.count + 1) or x * layer.count)
    layer.count = 0
    with pytest.raises(CannotCompile, match=r"assigns self.count; values that last"):
        run(layer, torch.randn(1, 8))
    assert layer.count == 0


class Counter(nn.Module):
    """Carries a vector and a count, and a part that no step changes."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 6)

    def initial_state(self, batch):
        return torch.zeros(batch, 6), (torch.zeros(batch, dtype=torch.long), torch.ones(batch, 2))

    def step(self, x, state):
        hidden, (count, same) = state
        hidden = torch.tanh(self.mix(x) + hidden)
        return hidden * (count + 1).unsqueeze(1), (hidden, (count + 1, same))


def test_a_step_never_changes_the_state_it_was_given():
    torch.manual_seed(0)
    layer = Counter()
    program = compile_step(layer, example=torch.zeros(1, 6))
    state = [torch.randn(1, 6), torch.tensor([3]), torch.randn(1, 2)]
    kept = [part.clone() for part in state]
    runner = Runner(program, state)
    for x in torch.randn(3, 1, 6):
        expected, (hidden, (count, same)) = layer.step(x, (runner.state[0].clone(), tuple(runner.state[1:])))
        before = [part.clone() for part in runner.state]
        given = runner.state
        torch.testing.assert_close(runner.step(x), expected.detach(), rtol=1e-6, atol=1e-6)
        for found, right in zip(runner.state, [hidden.detach(), count, same], strict=True):
            torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-6)
        assert all(torch.equal(a, b) for a, b in zip(before, given, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))


class Changing(nn.Module):
    """A state that is not what it was."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def initial_state(self, batch):
        return torch.zeros(batch, 6)

    def step(self, x, state):
        return x, self.change(state)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: state.double() + 1, r"float32, and \(1, 6\) torch.float64"),
        (lambda state: torch.cat([state, state], 1) + 1, r"\(1, 6\) torch.float32, and \(1, 12\)"),
        (lambda state: (state + 1, state), "has 1 parts, and 2 after a step"),
    ],
)
def test_a_state_that_changes_shape_or_dtype_is_rejected(change, reason):
    """Catches: no look at the new state: memory behind the old one was overwritten, and the process died."""
    with pytest.raises(CannotCompile, match=reason):
        compile_step(Changing(change), example=torch.zeros(1, 6))


def test_buffers_that_are_needed_at_the_same_time_share_no_memory():
    buffers = {f"t{n}": Buffer(f"t{n}", "scratch", size, torch.float32) for n, size in enumerate([20, 70, 5, 33, 64])}
    parts = [Part(["t0 t1"]), Part(["t1 t2"]), Part(["t2 t3"]), Part(["t3 t4"]), Part(["t4"])]
    places, size = _places(parts, buffers, 64)
    for part in parts:
        taken = sorted((places[name], buffers[name].size * 4) for name in part.names)
        assert all(place + length <= following for (place, length), (following, _) in itertools.pairwise(taken))
    assert min(places.values()) == 64
    assert size < 64 + sum(4 * buffer.size for buffer in buffers.values())  # else nothing is reused


def test_weights_can_be_renewed_without_compiling():
    layer = Function(lambda x, part: part(x), nn.Linear(5, 70))
    x = torch.randn(1, 5)
    program = compile_step(layer, example=x)
    runner = Runner(program, [])
    with torch.no_grad():
        layer.parts[0].weight.mul_(2)
    program.renew(list(layer.parameters()))
    torch.testing.assert_close(runner.step(x), layer.step(x, ())[0].detach(), rtol=1e-5, atol=1e-5)


def test_flushing_denormals_is_undone_after_a_step():
    found = run(Function(lambda x: x * 0.5), torch.tensor([[1.5e-38, 1.0]]))
    assert found.tolist() == [[0.0, 0.5]]
    assert 2.3e-308 / 4 > 0
    assert torch.tensor(1.5e-38) * 0.5 > 0


def test_a_missing_compiler_or_cache_is_an_error_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    build.compiler.cache_clear()
    try:
        with pytest.raises(NoCompiler, match="no C\\+\\+ compiler 'no-such-compiler'"):
            run(Function(lambda x: x * 5), torch.randn(1, 3))
    finally:
        build.compiler.cache_clear()
    monkeypatch.undo()
    monkeypatch.setenv("ELMAN_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(NoCompiler, match="cannot be written"):
        run(Function(lambda x: x * 5), torch.randn(1, 3))


BUILT = """
import torch
from elman.compiler.cpu.step import Runner, compile_step

class Sevenfold(torch.nn.Module):
    def initial_state(self, batch):
        return ()

    def step(self, x, state):
        return x * 7, ()

x = torch.ones(1, 3)
print(Runner(compile_step(Sevenfold(), "fp32", x), []).step(x).tolist())
"""


@pytest.mark.slow
def test_two_processes_may_build_the_same_program_at_once(tmp_path):
    variables = environment(ELMAN_CACHE=str(tmp_path))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda _: run_forked("-c", BUILT, env=variables), range(2)))
    assert [one.stdout for one in ended] == ["[[7.0, 7.0, 7.0]]\n"] * 2, ended
    # one program, and the library of matrix products and sampling
    assert [path.suffix for path in (tmp_path / "native").iterdir()] == [".so"] * 2


@pytest.mark.slow
def test_memory_is_constant_over_many_steps():
    layer = Counter()
    runner = Runner(
        compile_step(layer, example=torch.zeros(1, 6)), [torch.zeros(1, 6), torch.tensor([0]), torch.ones(1, 2)]
    )
    x = torch.randn(1, 6)
    for _ in range(1000):
        runner.step(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10**5):
        runner.step(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024  # kilobytes
    assert int(runner.state[1]) == 101_000
