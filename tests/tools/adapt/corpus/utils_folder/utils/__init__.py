from utils.data import build_loader
from utils.optim import build_optimizer
from utils.seed import set_seed
