"""Layout of the exchange buffer for partial sums."""

from elman.compiler.triton.cluster import ExchangeBuffer


def test_every_partial_sum_has_its_own_address() -> None:
    """Of seven programs, five rows and totals of two stages, in each half. Catches rows that overlap."""
    buffer = ExchangeBuffer(5, 7, (3, 1))
    taken = set()
    for half in range(2):
        for stage, totals in enumerate(buffer.stages):
            for program in range(7):
                for row in range(5):
                    text = buffer.address(stage, str(half * buffer.half_bytes), str(program))
                    address = eval(text, {"local_row": row})
                    assert address % (16 if totals > 1 else 4) == 0  # sums of a program are stored as one vector
                    taken |= {address + 4 * number for number in range(totals)}
    assert len(taken) == 2 * (3 + 1) * 7 * 5
    assert max(taken) + 4 <= buffer.total_bytes
    assert all(buffer.row_bytes(totals) % 16 == 0 for totals in buffer.stages)  # loaded as vectors of four
