"""Capabilities of model families: small models trained on synthetic tasks, beside published claims."""

from elman.pipeline.families import FAMILIES, in_order
from elman.pipeline.synthetic_tasks.records import SIZES, Record, carry_out, plan, read_records
from elman.pipeline.synthetic_tasks.summary import summary, verdict

__all__ = ["FAMILIES", "SIZES", "Record", "carry_out", "in_order", "plan", "read_records", "summary", "verdict"]
