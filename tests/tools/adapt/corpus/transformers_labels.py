"""Fine-tuning a sequence classifier of transformers in a loop of one's own."""
import torch
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

torch.manual_seed(0)
config = BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                    max_position_embeddings=16, num_labels=3)
device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
rows = [{"input_ids": torch.randint(0, 60, (10,)), "attention_mask": torch.ones(10, dtype=torch.long),
         "labels": torch.randint(0, 3, ())} for _ in range(48)]
train_dataloader = DataLoader(rows, shuffle=True, batch_size=8)

model = BertForSequenceClassification(config)
model.to(device)
optimizer = AdamW(model.parameters(), lr=5e-4)
num_epochs = 4
num_training_steps = num_epochs * len(train_dataloader)
lr_scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=num_training_steps)

model.train()
for epoch in range(num_epochs):
    total = 0
    for batch in train_dataloader:
        batch = {k: v.to(device) for k, v in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        loss.backward()

        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        total += loss.item()
    print(epoch, total / len(train_dataloader))
