"""Drafting without a model: what was said before may be said again."""

from typing import Annotated

from turbodflash_cli.flags.flag import Flag, Group, flag
from turbodflash_cli.flags.values import whole
from turbodflash_engine import SPEC_TYPES


def _count(name: str, default: int, help: str) -> Flag:
    return flag(name, help=help, metavar="N", parse=whole(low=1, high=1024), default=str(default))


class NgramFlags(Group):
    """Sizes of what must match and of what is proposed. A field is a type and its setting."""

    panel = "Drafting from the text itself, by --spec-type"

    ngram_simple_size_n: Annotated[
        int | None, _count("--spec-ngram-simple-size-n", 12, "Last tokens that must match.")
    ] = None
    ngram_simple_size_m: Annotated[
        int | None, _count("--spec-ngram-simple-size-m", 48, "The most tokens proposed.")
    ] = None
    ngram_simple_min_hits: Annotated[
        int | None, _count("--spec-ngram-simple-min-hits", 1, "Matches asked for.")
    ] = None
    ngram_map_k_size_n: Annotated[
        int | None, _count("--spec-ngram-map-k-size-n", 12, "Last tokens that must match.")
    ] = None
    ngram_map_k_size_m: Annotated[
        int | None, _count("--spec-ngram-map-k-size-m", 48, "The most tokens proposed.")
    ] = None
    ngram_map_k_min_hits: Annotated[
        int | None, _count("--spec-ngram-map-k-min-hits", 1, "Matches asked for.")
    ] = None
    ngram_map_k4v_size_n: Annotated[
        int | None, _count("--spec-ngram-map-k4v-size-n", 12, "Last tokens that must match.")
    ] = None
    ngram_map_k4v_size_m: Annotated[
        int | None, _count("--spec-ngram-map-k4v-size-m", 48, "The most tokens proposed.")
    ] = None
    ngram_map_k4v_min_hits: Annotated[
        int | None, _count("--spec-ngram-map-k4v-min-hits", 1, "Matches asked for.")
    ] = None
    ngram_mod_n_match: Annotated[
        int | None, _count("--spec-ngram-mod-n-match", 24, "Last tokens a guess is looked up by.")
    ] = None
    ngram_mod_n_min: Annotated[
        int | None, _count("--spec-ngram-mod-n-min", 48, "The fewest tokens proposed.")
    ] = None
    ngram_mod_n_max: Annotated[
        int | None, _count("--spec-ngram-mod-n-max", 64, "The most tokens proposed.")
    ] = None


def type_and_setting(field: str) -> tuple[str, str]:
    """The type of drafting that a field is about, and the setting of that type."""
    for kind in SPEC_TYPES:
        name = f"{kind.replace('-', '_')}_"
        if field.startswith(name):
            return kind, field.removeprefix(name)
    raise ValueError(f"{field!r} begins with no type of drafting")
