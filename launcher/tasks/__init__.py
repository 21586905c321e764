"""All tasks: what a model is trained to do."""

from launcher.tasks.base import Task
from launcher.tasks.sequence_classification import SequenceClassification

ALL: tuple[type[Task], ...] = (SequenceClassification,)

__all__ = ["ALL", "SequenceClassification", "Task"]
