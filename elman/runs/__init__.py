"""Run folders: the files of one training run, crash-safe."""

from elman.files import RunWarning, atomic_write
from elman.runs.checkpoint import Checkpoint, CheckpointFolder
from elman.runs.environment import environment
from elman.runs.file_manifest import FileManifest
from elman.runs.metrics import MetricsLog, read_metrics
from elman.runs.run import Run
