"""How fast a model runs here, beside what the machine could do at best.

Speeds are taken in turns with the machine's own ceilings, and their quotient turn by turn: a
machine that is shared is never equally fast for long, but it is for a tenth of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from turbodflash_engine.events import Progress
from turbodflash_engine.loading import Loaded, load
from turbodflash_engine.options import LoadOptions
from turbodflash_engine.sampling.candidates import Largest
from turbodflash_kernels.device import Probe

PROMPT = 512
DEEP = 2048
ROWS = (2, 4, 8)
TURNS = 7
STEPS = 12  # tokens a turn

Report = Callable[[Progress], None]
Figures = dict[str, Any]


def measure(options: LoadOptions, progress: Report | None = None) -> Figures:
    """Speeds of one model, its weights loaded once, in one process.

    Tokens a second for a prompt of 512 and for single tokens after 0 and 2048 others; the time of
    a pass over 2, 4 and 8 rows over that of one; GB/s of weights and cache read, GMAC/s, and both
    in percent of the ceilings measured in the same turn. A pass takes until the largest logits of
    its rows are found, as in greedy decoding. Raises what `open_session` raises.
    """
    report = progress or (lambda event: None)
    options = replace(options, context=options.context or DEEP + PROMPT, cache_type_k="f16")
    start = time.perf_counter()
    loaded = load(options, progress)
    bench = _Bench(loaded, loaded.device.probe(), report, time.perf_counter() - start)
    return bench.figures()


@dataclass(slots=True)
class _Turn:
    """Seconds of one thing, and what it is held against, taken right after it."""

    seconds: float
    ceiling: float


class _Bench:
    def __init__(self, loaded: Loaded, probe: Probe, report: Report, load_seconds: float) -> None:
        self._model, self._info, self._probe = loaded.model, loaded.info, probe
        self._report, self._load_seconds = report, load_seconds
        self._done, self._all = 0, (3 + len(ROWS)) * TURNS

    def figures(self) -> Figures:
        self._probe.read_gbs(), self._probe.peak_gmacs()  # compile and touch
        prompt = self._turns(self._prompt, self._probe.peak_gmacs)
        start = self._turns(partial(self._steps, 0), self._probe.read_gbs)
        passes = {
            rows: self._turns(partial(self._rows, rows), partial(self._rows, 1)) for rows in ROWS
        }
        deep = self._turns(partial(self._steps, DEEP), self._probe.read_gbs)
        one = median(turn.seconds for turn in start)
        macs = self._info.token.macs * PROMPT / 1e9
        return {
            "model": self._info.name,
            "threads": self._probe.threads,
            "isa": self._probe.isa,
            "read_gbs": max(turn.ceiling for turn in (*start, *deep)),
            "peak_gmacs": max(turn.ceiling for turn in prompt),
            "load_s": self._load_seconds,
            "prompt_tps": PROMPT / median(turn.seconds for turn in prompt),
            "prompt_percent_of_peak": _percent(macs, prompt),
            "ttft_s": median(turn.seconds for turn in prompt),
            "decode_tps": 1 / one,
            "decode_gbs": self._bytes(0) / one / 1e9,
            "decode_percent_of_read": _percent(self._bytes(0) / 1e9, start),
            "decode_tps_2048": 1 / median(turn.seconds for turn in deep),
            "decode_2048_percent_of_read": _percent(self._bytes(DEEP) / 1e9, deep),
            "pass_over_one_row": {
                f"{rows}_rows": median(turn.seconds / turn.ceiling for turn in turns)
                for rows, turns in passes.items()
            },
        }

    def _turns(self, run: Callable[[], float], ceiling: Callable[[], float]) -> Sequence[_Turn]:
        run()  # what is captured is captured
        turns = []
        for _ in range(TURNS):
            turns.append(_Turn(run(), ceiling()))
            self._done += 1
            self._report(Progress("measuring", self._done, self._all, "turns"))
        return turns

    def _prompt(self) -> float:
        self._model.cache.truncate(0)
        run = _tokens(PROMPT, self._model.vocabulary)
        return _seconds(lambda: self._pass(run, 1))

    def _steps(self, past: int) -> float:
        """Seconds of one token after `past` others."""
        self._fill(past)
        return _seconds(lambda: [self._pass([7], 1) for _ in range(STEPS)]) / STEPS

    def _rows(self, rows: int) -> float:
        self._fill(0)
        run = _tokens(rows, self._model.vocabulary)
        return _seconds(lambda: [self._pass(run, rows) for _ in range(STEPS)]) / STEPS

    def _pass(self, run: Sequence[int], rows: int) -> Largest:
        """A pass that nobody asks for logits makes none."""
        return self._model(run, logits=rows).largest(1, self._model.vocabulary)

    def _fill(self, past: int) -> None:
        cache = self._model.cache
        cache.truncate(cache.reach(past))
        while cache.length < past:
            run = _tokens(min(PROMPT, past - cache.length), self._model.vocabulary)
            self._model(run, logits=0)

    def _bytes(self, past: int) -> float:
        """What a token after `past` others makes the processor read."""
        seen = past + STEPS / 2
        return self._info.token.nbytes + self._info.memory.cache * seen / self._info.context


def _tokens(count: int, vocabulary: int) -> list[int]:
    """Some tokens, the same every time, spread over the vocabulary."""
    return [i * 7919 % vocabulary for i in range(1, count + 1)]


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _percent(amount: float, turns: Sequence[_Turn]) -> float:
    """Amount a second, in percent of the ceiling of the same turn."""
    return 100 * median(amount / turn.seconds / turn.ceiling for turn in turns)
