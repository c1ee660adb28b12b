"""Options that published llama.cpp commands carry and that are not ours.

A command that was written for another program should run as typed, or stop with one sentence.
"""

from __future__ import annotations


def _spread(groups: dict[str, int]) -> dict[str, int]:
    return {name: words for names, words in groups.items() for name in names.split()}


IGNORED = _spread(
    {
        # name or names: how many words follow
        "--mmap --no-mmap --mlock -dio --direct-io -ndio --no-direct-io": 0,
        "-lm --load-mode": 1,
        "--numa": 1,
        "-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll": 1,
        "-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch": 1,
        "--prio-batch --poll-batch": 1,
        "--repack -nr --no-repack --op-offload --no-op-offload --no-host": 0,
        "-kvo --kv-offload -nkvo --no-kv-offload --kv-unified --no-kv-unified": 0,
        "-kvu -no-kvu": 0,
        "-dt --defrag-thold -ctxcp --ctx-checkpoints --swa-checkpoints": 1,
        "-cram --cache-ram": 1,
        "-sm --split-mode -ts --tensor-split -mg --main-gpu": 1,
        "--spec-draft-p-split --draft-p-split": 1,
        "-cmoe --cpu-moe -cmoed --cpu-moe-draft --spec-draft-cpu-moe": 0,
        "-ncmoe --n-cpu-moe -ncffn --n-cpu-ffn": 1,
        "-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe": 1,
        "--spec-draft-backend-sampling --no-spec-draft-backend-sampling": 0,
        "-fitt --fit-target -fitc --fit-ctx": 1,
        "--perf --no-perf --check-tensors": 0,
        "--log-disable --log-prefix --no-log-prefix": 0,
        "--log-timestamps --no-log-timestamps": 0,
        "--log-file --log-colors": 1,
        "--reasoning-preserve --no-reasoning-preserve --skip-chat-parsing": 0,
    }
)
"""Accepted without effect, with a note."""

UNSUPPORTED = _spread(
    {
        "--grammar --grammar-file -j --json-schema -jf --json-schema-file": 1,
        "--lora --lora-scaled --control-vector --control-vector-scaled": 1,
        "--control-vector-layer-range": 2,
        "-mm --mmproj -mmu --mmproj-url --image --audio --video": 1,
        "--no-mmproj --mmproj-auto": 0,
        "-mu --model-url -dr --docker-repo --override-kv -ot --override-tensor --rpc": 1,
        "-bf --binary-file --in-prefix --in-suffix --server-base": 1,
        "--in-prefix-bos": 0,
        "-gan --grp-attn-n -gaw --grp-attn-w": 1,
        "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast": 1,
        "--adaptive-target --adaptive-decay": 1,
        "-bs --backend-sampling --log-jsonl --verbose-prompt": 0,
        "-lcs --lookup-cache-static -lcd --lookup-cache-dynamic": 1,
        "-cl --cache-list": 0,
    }
)
"""Refused: leaving one of these out silently would change the answer."""

INSTEAD = {
    "-cl": "use: turbodflash models",
    "--cache-list": "use: turbodflash models",
    "-mu": "download the file and pass it with -m, or use -hf user/repo",
    "--model-url": "download the file and pass it with -m, or use -hf user/repo",
}
"""What to do in place of a refused option."""


def words_after(name: str) -> int | None:
    """How many words follow an option that is not ours; None for an unknown one."""
    for table in (IGNORED, UNSUPPORTED):
        if name in table:
            return table[name]
    return None
