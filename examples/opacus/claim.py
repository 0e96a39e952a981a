"""Does the client of `client.py` keep the ε of its accountant? A canary record is planted, and a page is written.

python examples/opacus/claim.py RESULTS [TRAININGS]
"""

from __future__ import annotations

import sys
from pathlib import Path

import client
import dpfl_audit
from opacus import PrivacyEngine


def main(folder: str = "results", trainings: int = 100) -> None:
    engine, data = PrivacyEngine(), client.records()
    client.train(data, engine)  # the training that the client claims an ε for
    audit = dpfl_audit.audit_opacus(
        client.train, engine, data, delta=1e-5, trainings=trainings, name="an Opacus client"
    )
    print("\n".join(audit.sentences))
    audit.save(folder, force=True)
    dpfl_audit.Results.read(folder).show()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(sys.argv[1] if len(sys.argv) > 1 else "results", int(sys.argv[2]) if len(sys.argv) > 2 else 100)
