# Classes of unequal weight: the loss is the Trainer's own method.
import numpy as np
import torch
from torch import nn
import transformers
from transformers import Trainer, TrainingArguments

torch.manual_seed(3)
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 6)).astype("float32")
Y = (X.sum(1) > 0).astype("int64")
data = [{"x": torch.tensor(a), "labels": int(b)} for a, b in zip(X, Y)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, labels=None):
        return {"logits": self.body(x)}


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs["logits"]
        loss_fct = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
        loss = loss_fct(logits.view(-1, 2), labels.view(-1))
        return (loss, outputs) if return_outputs else loss


model = Net()
trainer = WeightedTrainer(
    model,
    TrainingArguments("out", max_steps=25, per_device_train_batch_size=8, lr_scheduler_type="cosine", learning_rate=0.01,
                      report_to=[], save_strategy="no", seed=7),
    train_dataset=data,
)
trainer.train()
print(model.body[0].weight.sum().item())
