"""Hugging Face folders in and out: config.json and weights of known architectures against our stacks."""

from elman.models.hugging_face import bert, gpt2, llama, mamba, mixtral  # noqa: F401
from elman.models.hugging_face.family import FAMILIES, Family
from elman.models.hugging_face.folder import is_hugging_face, read_json
from elman.models.hugging_face.mapping import from_folder, to_contents

__all__ = ["FAMILIES", "Family", "from_folder", "is_hugging_face", "read_json", "to_contents"]
