"""One site: DP-SGD by Opacus on its own rows of scikit-learn's breast cancer table, as NVFlare's hello-dp does it."""

import warnings

import nvflare.client as flare
import torch
from model import Net
from nvflare.client import FLModel, ParamsType
from opacus import PrivacyEngine
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RECORDS, BATCH = 280, 28  # of each site; a record is drawn into a step by a coin of 1/10


def rows_of(site):
    inputs, labels = load_breast_cancer(return_X_y=True)
    inputs = torch.tensor(StandardScaler().fit_transform(inputs), dtype=torch.float32)
    own = slice(site * RECORDS, (site + 1) * RECORDS)
    return TensorDataset(inputs[own], torch.tensor(labels[own]))


def main():
    warnings.simplefilter("ignore")  # Opacus's own
    flare.init()
    site = int(flare.get_site_name().removeprefix("site-")) - 1
    net = Net()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    loader = DataLoader(rows_of(site), batch_size=BATCH)
    private, optimiser, loader = PrivacyEngine().make_private(
        module=net, optimizer=optimiser, data_loader=loader, noise_multiplier=1.5, max_grad_norm=1.0
    )
    while flare.is_running():
        given = {name: torch.as_tensor(value) for name, value in flare.receive().params.items()}
        net.load_state_dict(given)
        for inputs, labels in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(private(inputs), labels).backward()
            optimiser.step()
        update = {name: value - given[name] for name, value in net.state_dict().items()}
        flare.send(FLModel(params=update, params_type=ParamsType.DIFF))


if __name__ == "__main__":
    main()
