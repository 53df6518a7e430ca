"""Import and export of Hugging Face model folders for known architectures."""

from elman.models.hugging_face import bert, decoders  # noqa: F401  (they register themselves)
from elman.models.hugging_face.family import FAMILIES, Family
from elman.models.hugging_face.folder import is_hugging_face, read_json
from elman.models.hugging_face.mapping import export_contents, from_folder

__all__ = ["FAMILIES", "Family", "export_contents", "from_folder", "is_hugging_face", "read_json"]
