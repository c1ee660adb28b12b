"""The engine as a library: stream an answer, then say how fast it came.

python examples/generate.py MODEL.gguf "What is a trie?"
"""

from __future__ import annotations

import sys
from pathlib import Path

from turbodflash_engine import Finished, LoadOptions, SampleOptions, SayOptions, Text, open_session


def main(model: str, question: str) -> None:
    session = open_session(LoadOptions(model=Path(model)))
    options = SayOptions(max_tokens=200, sample=SampleOptions(temp=0))
    for event in session.chat([{"role": "user", "content": question}], options):
        match event:
            case Text(piece):
                print(piece, end="", flush=True)
            case Finished():
                print(f"\n[{event.new_tokens} tokens, {event.tokens_per_second:.0f} t/s]")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
