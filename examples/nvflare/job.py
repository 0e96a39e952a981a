"""python job.py: two sites and three rounds in NVFlare's simulator, recorded into the folder dump."""

from pathlib import Path

from dpfl_audit import AuditFilter
from model import Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import TransferType
from nvflare.recipe import SimEnv

if __name__ == "__main__":
    dump = str(Path("dump").resolve())
    recipe = FedAvgRecipe(
        name="hello-dp",
        model=Net(),
        min_clients=2,
        num_rounds=3,
        train_script="client.py",
        params_transfer_type=TransferType.DIFF,
    )
    recipe.add_client_input_filter(AuditFilter(dump, "global"), tasks=["train"])
    recipe.add_client_output_filter(AuditFilter(dump, "sent"), tasks=["train"])
    recipe.execute(SimEnv(num_clients=2, num_threads=1, workspace_root="simulation"))
