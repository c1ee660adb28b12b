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
        "-kvu -no-kvu --swa-full": 0,
        "-dt --defrag-thold -ctxcp --ctx-checkpoints --swa-checkpoints": 1,
        "-cram --cache-ram": 1,
        "-sm --split-mode -ts --tensor-split -mg --main-gpu": 1,
        "-cmoe --cpu-moe": 0,
        "-ncmoe --n-cpu-moe -ncffn --n-cpu-ffn": 1,
        "-fit --fit -fitt --fit-target -fitc --fit-ctx": 1,
        "--perf --no-perf --check-tensors --no-context-shift": 0,
        "--log-disable --log-prefix --no-log-prefix": 0,
        "--log-timestamps --no-log-timestamps": 0,
        "--log-file --log-colors": 1,
        "--reasoning-preserve --no-reasoning-preserve --skip-chat-parsing": 0,
    }
)
"""Accepted without effect, with a note."""

LATER = _spread(
    {
        "-md --model-draft --spec-draft-model": 1,
        "-hfd -hfrd --hf-repo-draft --spec-draft-hf": 1,
        "--dflash --eagle3 --spec-default": 0,
        "-cd --ctx-size-draft --spec-draft-ctx-size": 1,
        "--spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --spec-draft-p-split": 1,
        "--draft-p-min --draft-p-split": 1,
        "--draft --draft-n --draft-max --draft-min --draft-n-min": 1,
        "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl": 1,
        "-ctkd --cache-type-k-draft --spec-draft-type-k": 1,
        "-ctvd --cache-type-v-draft --spec-draft-type-v": 1,
        "-devd --device-draft --spec-draft-device": 1,
        "-td --threads-draft --spec-draft-threads": 1,
        "-tbd --threads-batch-draft --spec-draft-threads-batch": 1,
        "--spec-type --spec-synth-len --spec-synth-rates": 1,
    }
)
"""Drafting: this version decodes token by token."""

UNSUPPORTED = _spread(
    {
        "--grammar --grammar-file -j --json-schema -jf --json-schema-file": 1,
        "--lora --lora-scaled --control-vector --control-vector-scaled": 1,
        "--control-vector-layer-range": 2,
        "-mm --mmproj -mmu --mmproj-url --image --audio --video": 1,
        "--no-mmproj --mmproj-auto": 0,
        "-mu --model-url -dr --docker-repo --override-kv -ot --override-tensor --rpc": 1,
        "-bf --binary-file --in-prefix --in-suffix --prompt-cache --server-base": 1,
        "--in-prefix-bos --prompt-cache-all --prompt-cache-ro --context-shift": 0,
        "--keep -gan --grp-attn-n -gaw --grp-attn-w": 1,
        "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast": 1,
        "--adaptive-target --adaptive-decay": 1,
        "-bs --backend-sampling --log-jsonl --verbose-prompt": 0,
        "--reasoning-budget --reasoning-budget-message": 1,
        "-cl --cache-list --list-devices": 0,
    }
)
"""Refused: leaving one of these out silently would change the answer."""

INSTEAD = {
    "-cl": "use: turbodflash models",
    "--cache-list": "use: turbodflash models",
    "-mu": "download the file and pass it with -m, or use -hf user/repo",
    "--model-url": "download the file and pass it with -m, or use -hf user/repo",
    "--context-shift": "use a larger -c, or /clear in a chat",
    "--keep": "use a larger -c, or /clear in a chat",
    "--reasoning-budget": "use --reasoning off to skip the thinking",
}
"""What to do in place of a refused option."""

NO_DRAFT = {("--spec-type", "none")}
"""Options with a value under which they ask for nothing."""


def words_after(name: str) -> int | None:
    """How many words follow an option that is not ours; None for an unknown one."""
    for table in (IGNORED, LATER, UNSUPPORTED):
        if name in table:
            return table[name]
    return None
