import sambaflow.samba as samba
import sambaflow.samba.utils as utils
import torch
from sambaflow.samba.utils.argparser import parse_app_args


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, x, y):
        out = self.layer(x)
        return self.criterion(out, y), out


args = parse_app_args()
model = Net()
samba.from_torch_model_(model)
inputs = samba.randn(8, 4, name="x"), samba.randint(2, (8,), name="y")
optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
if args.command == "compile":
    samba.session.compile(model, inputs, optimizer, name="net", config_dict=vars(args))
else:
    utils.trace_graph(model, inputs, optimizer, pef=args.pef)
    samba.session.run(inputs, model.output_tensors)
