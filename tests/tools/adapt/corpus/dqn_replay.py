"""Values of actions learned from stored transitions, with a target network."""
import copy
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(3, 16)
        self.layer2 = nn.Linear(16, 2)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


random.seed(0)
torch.manual_seed(0)
GAMMA, BATCH_SIZE = 0.9, 16
policy_net = DQN()
target_net = copy.deepcopy(policy_net)
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory = ReplayMemory(200)
for _ in range(100):
    memory.push(torch.randn(1, 3), torch.tensor([[random.randrange(2)]]), torch.randn(1, 3), torch.randn(1))


def optimize_model():
    if len(memory.memory) < BATCH_SIZE:
        return
    transitions = memory.sample(BATCH_SIZE)
    batch = Transition(*zip(*transitions))
    state_batch = torch.cat(batch.state)
    action_batch = torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)
    with torch.no_grad():
        next_values = target_net(torch.cat(batch.next_state)).max(1).values
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    expected = (next_values * GAMMA) + reward_batch
    criterion = nn.SmoothL1Loss()
    loss = criterion(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for episode in range(22):
    value = optimize_model()
    if episode % 10 == 9:
        target_net.load_state_dict(policy_net.state_dict())
        print(episode, value)
