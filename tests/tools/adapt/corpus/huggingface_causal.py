"""A small language model from a configuration, trained by the Trainer of transformers."""
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator


class Tokens(Dataset):
    def __init__(self, n=96, length=16):
        g = torch.Generator().manual_seed(1)
        self.ids = torch.randint(0, 64, (n, length), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def main():
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    # How it is trained.
    training_args = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        num_train_epochs=2,
        learning_rate=1e-3,
        weight_decay=0.01,
        warmup_steps=5,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Tokens(),
        data_collator=default_data_collator,
    )
    trainer.train()
    model.save_pretrained("out/last")


if __name__ == "__main__":
    main()
