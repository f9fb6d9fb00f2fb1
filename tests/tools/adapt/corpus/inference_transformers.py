import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=12, num_labels=3,
)
model = BertForSequenceClassification(config)
model.eval()


def batches(rows, size):
    ids = torch.randint(0, 50, (rows, 12))
    mask = (torch.arange(12) < torch.randint(4, 13, (rows, 1))).long()
    for start in range(0, rows, size):
        yield {"input_ids": ids[start:start + size], "attention_mask": mask[start:start + size]}


predictions = []
for batch in batches(24, 8):
    with torch.no_grad():
        output = model(**batch)
    predictions.extend(output.logits.argmax(-1).tolist())
print(predictions)
