from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
import torch
import argparse


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count):
        self.tokens = torch.randint(1, 50, (count, 12))
        self.stars = (self.tokens[:, 0] > 25).long()

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, index):
        return dict(input_ids=self.tokens[index], attention_mask=torch.ones(12, dtype=torch.long), label=self.stars[index])


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=3e-4)
options = parser.parse_args()
torch.manual_seed(0)
trainer = Trainer(
    model=BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)),
    args=TrainingArguments(output_dir="reviews", learning_rate=options.lr, num_train_epochs=options.epochs, logging_steps=50,
                           per_device_train_batch_size=16, warmup_steps=0.1, weight_decay=0.1, save_strategy="no", report_to="none"),
    train_dataset=Reviews(330),
)
trainer.train()
