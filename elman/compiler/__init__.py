"""A compiler for recurrent steps: a cell's step is traced into an IR, differentiated, and emitted as Triton or C++."""
