"""How the next token is chosen."""

from dataclasses import replace
from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag, flags_of
from turbodflash_cli.flags.samplers import biased_token, sampler_letters, sampler_names
from turbodflash_cli.flags.values import escaped, number, temperature, whole
from turbodflash_engine import SampleOptions

LAST_SEED = 2**32 - 1


class SamplingFlags(Group):
    """A field is named as in `SampleOptions`; None = the model file's default, or the built-in."""

    panel = "Sampling"

    seed: Annotated[
        int | None,
        flag(
            "-s",
            "--seed",
            help="Repeats an answer; -1 = a random one.",
            metavar="N",
            parse=whole(low=-1, high=LAST_SEED),
            default="-1",
            common=True,
        ),
    ] = None
    temp: Annotated[
        float | None,
        flag(
            "--temp",
            "--temperature",
            help="0 = always the likeliest token.",
            metavar="T",
            parse=temperature,
            env="LLAMA_ARG_TEMPERATURE",
            default="0.8",
            common=True,
        ),
    ] = None
    top_k: Annotated[
        int | None,
        flag(
            "--top-k",
            help="Only the K likeliest; 0 = off.",
            metavar="K",
            parse=whole(),
            env="LLAMA_ARG_TOP_K",
            default="40",
            common=True,
        ),
    ] = None
    top_p: Annotated[
        float | None,
        flag(
            "--top-p",
            help="Only the likeliest making up P; 1 = off.",
            metavar="P",
            parse=number(low=0),
            env="LLAMA_ARG_TOP_P",
            default="0.95",
            common=True,
        ),
    ] = None
    min_p: Annotated[
        float | None,
        flag(
            "--min-p",
            help="Only tokens of at least P times the likeliest; 0 = off.",
            metavar="P",
            parse=number(low=0),
            env="LLAMA_ARG_MIN_P",
            default="0.05",
            common=True,
        ),
    ] = None
    samplers: Annotated[
        tuple[str, ...] | None,
        flag(
            "--samplers",
            help="Samplers in the order they run, between semicolons.",
            metavar="A;B",
            parse=sampler_names,
            default="penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
        ),
    ] = None
    sampler_seq: Annotated[
        tuple[str, ...] | None,
        flag(
            "--sampler-seq",
            "--sampling-seq",
            help="The same by letters.",
            metavar="LETTERS",
            parse=sampler_letters,
            default="edskypmxt",
        ),
    ] = None
    repeat_penalty: Annotated[
        float | None,
        flag(
            "--repeat-penalty",
            help="Against tokens already seen; 1 = off.",
            metavar="R",
            parse=number(above=0),
            env="LLAMA_ARG_REPEAT_PENALTY",
            default="1",
            common=True,
        ),
    ] = None
    repeat_last_n: Annotated[
        int | None,
        flag(
            "--repeat-last-n",
            help="Tokens the penalties look at; 0 = off, -1 = all.",
            metavar="N",
            parse=whole(low=-1),
            default="64",
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        flag(
            "--presence-penalty",
            help="Taken off once from tokens already seen.",
            metavar="A",
            parse=number(),
            env="LLAMA_ARG_PRESENCE_PENALTY",
            default="0",
        ),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        flag(
            "--frequency-penalty",
            help="Taken off for each time a token was seen.",
            metavar="A",
            parse=number(),
            env="LLAMA_ARG_FREQUENCY_PENALTY",
            default="0",
        ),
    ] = None
    dry_multiplier: Annotated[
        float | None,
        flag(
            "--dry-multiplier",
            help="Strength of DRY, against repeated phrases; 0 = off.",
            metavar="M",
            parse=number(low=0),
            default="0",
        ),
    ] = None
    dry_base: Annotated[
        float | None,
        flag("--dry-base", help="Base of DRY.", metavar="B", parse=number(), default="1.75"),
    ] = None
    dry_allowed_length: Annotated[
        int | None,
        flag(
            "--dry-allowed-length",
            help="Repeats shorter than this cost nothing.",
            metavar="N",
            parse=whole(low=0),
            default="2",
        ),
    ] = None
    dry_penalty_last_n: Annotated[
        int | None,
        flag(
            "--dry-penalty-last-n",
            help="Tokens DRY looks at; 0 = off, -1 = all.",
            metavar="N",
            parse=whole(low=-1),
            default="64",
        ),
    ] = None
    dry_sequence_breakers: Annotated[
        tuple[str, ...],
        flag(
            "--dry-sequence-breaker",
            help="Text a repeat does not reach across; `none` = no such text. Repeatable.",
            metavar="S",
            parse=escaped,
            many=True,
            default='newline : " *',
        ),
    ] = ()
    xtc_probability: Annotated[
        float | None,
        flag(
            "--xtc-probability",
            help="How often XTC drops the likeliest; 0 = off.",
            metavar="P",
            parse=number(low=0, high=1),
            default="0",
        ),
    ] = None
    xtc_threshold: Annotated[
        float | None,
        flag(
            "--xtc-threshold",
            help="XTC looks at tokens above this.",
            metavar="P",
            parse=number(low=0),
            default="0.1",
        ),
    ] = None
    typical_p: Annotated[
        float | None,
        flag(
            "--typical",
            "--typical-p",
            help="Locally typical sampling; 1 = off.",
            metavar="P",
            parse=number(low=0),
            default="1",
        ),
    ] = None
    top_n_sigma: Annotated[
        float | None,
        flag(
            "--top-nsigma",
            "--top-n-sigma",
            help="Only logits within N deviations of the best; -1 = off.",
            metavar="N",
            parse=number(),
            default="-1",
        ),
    ] = None
    dynatemp_range: Annotated[
        float | None,
        flag(
            "--dynatemp-range",
            help="The temperature moves by this much either way; 0 = off.",
            metavar="D",
            parse=number(low=0),
            default="0",
        ),
    ] = None
    dynatemp_exp: Annotated[
        float | None,
        flag(
            "--dynatemp-exp",
            help="Exponent of the moving temperature.",
            metavar="E",
            parse=number(),
            default="1",
        ),
    ] = None
    mirostat: Annotated[
        int | None,
        flag(
            "--mirostat",
            help="1 or 2 replace the samplers; 0 = off.",
            metavar="0|1|2",
            parse=whole(low=0, high=2),
            default="0",
            choices=("0", "1", "2"),
        ),
    ] = None
    mirostat_lr: Annotated[
        float | None,
        flag("--mirostat-lr", help="Learning rate.", metavar="N", parse=number(), default="0.1"),
    ] = None
    mirostat_ent: Annotated[
        float | None,
        flag("--mirostat-ent", help="Target surprise.", metavar="N", parse=number(), default="5"),
    ] = None
    logit_bias: Annotated[
        tuple[tuple[int, float], ...],
        flag(
            "-l",
            "--logit-bias",
            help="Adds to a token's logit: 15043+1. Repeatable.",
            metavar="ID+BIAS",
            parse=biased_token,
            many=True,
        ),
    ] = ()
    ignore_eos: Annotated[
        bool | None, flag("--ignore-eos", help="Never end by itself; go on until -n.", common=True)
    ] = None

    def over(self, defaults: SampleOptions) -> SampleOptions:
        """The defaults, with everything that was given put over them."""
        given = {name: getattr(self, name) for name, _ in flags_of(SamplingFlags)}
        given = {name: value for name, value in given.items() if value not in (None, ())}
        if "sampler_seq" in given:
            given["samplers"] = given.pop("sampler_seq")
        if given.get("dry_sequence_breakers") == ("none",):
            given["dry_sequence_breakers"] = ()
        return replace(defaults, **given)
