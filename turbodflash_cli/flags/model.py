"""Which model."""

from pathlib import Path
from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import path


class ModelFlags(Group):
    """A file, or a repository to fetch it from; neither = the default model of the catalogue."""

    panel = "Model"

    model: Annotated[
        Path | None,
        flag(
            "-m",
            "--model",
            help="GGUF file; of a split model, the first part.",
            metavar="FILE",
            parse=path,
            env="LLAMA_ARG_MODEL",
            default="the default model, see `turbodflash models`",
            common=True,
        ),
    ] = None
    hf_repo: Annotated[
        str | None,
        flag(
            "-hf",
            "-hfr",
            "--hf-repo",
            help="Hugging Face repository, fetched once and kept.",
            metavar="USER/MODEL[:QUANT]",
            env="LLAMA_ARG_HF_REPO",
            common=True,
        ),
    ] = None
    hf_file: Annotated[
        str | None,
        flag(
            "-hff",
            "--hf-file",
            help="Exact file of the repository; beats the quant.",
            metavar="FILE",
            env="LLAMA_ARG_HF_FILE",
        ),
    ] = None
    hf_token: Annotated[
        str | None,
        flag(
            "-hft", "--hf-token", help="Access token of the hub.", metavar="TOKEN", env="HF_TOKEN"
        ),
    ] = None
    offline: Annotated[
        bool,
        flag(
            "--offline",
            help="Use what is kept already, never the network.",
            env="LLAMA_ARG_OFFLINE",
            common=True,
        ),
    ] = False
