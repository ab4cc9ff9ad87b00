"""A tokenizer for the tiny models: token 5 is the word "w5"."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tests.tiny_models import VOCABULARY

SPECIAL = ("<pad>", "<s>", "</s>")


def word_tokenizer(words: Iterable[str] = ()) -> PreTrainedTokenizerBase:
    """Pads on the left, as generation needs. `words` are known too, in place of "w10" and so on; all others are "w3"."""
    named = dict(enumerate(dict.fromkeys(words), start=10))
    numbers = {token: number for number, token in enumerate(SPECIAL)}
    numbers.update({named.get(number, f"w{number}"): number for number in range(len(SPECIAL), VOCABULARY)})
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="w3"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left"
    )
