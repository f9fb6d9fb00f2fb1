import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)
teacher = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 5))
teacher.eval()
for p in teacher.parameters():
    p.requires_grad_(False)
student = nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 5))
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
T, alpha = 2.0, 0.7
data = torch.utils.data.TensorDataset(torch.randn(120, 8), torch.randint(0, 5, (120,)))
loader = torch.utils.data.DataLoader(data, batch_size=24, shuffle=True)
for epoch in range(5):
    for x, y in loader:
        with torch.no_grad():
            teacher_logits = teacher(x)
        student_logits = student(x)
        soft = F.kl_div(F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1),
                        reduction="batchmean") * T * T
        hard = F.cross_entropy(student_logits, y)
        loss = alpha * soft + (1 - alpha) * hard
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: soft {soft.item():.4f} hard {hard.item():.4f}")
