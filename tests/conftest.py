"""For all tests: one thread, and hypothesis without a clock, the same examples in every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("elman", deadline=None, derandomize=True, database=None, max_examples=20)
settings.load_profile("elman")
