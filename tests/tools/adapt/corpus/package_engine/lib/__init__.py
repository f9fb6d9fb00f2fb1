from .datasets import make_dataset
from .engine import evaluate, train_one_epoch
from .models import TinyTransformer

__all__ = ["TinyTransformer", "evaluate", "make_dataset", "train_one_epoch"]
