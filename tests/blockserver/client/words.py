"""A tokenizer for the tiny models: token 5 is the word "w5"."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tests.tiny_models import VOCABULARY

SPECIAL = ("<pad>", "<s>", "</s>")


def word_tokenizer() -> PreTrainedTokenizerBase:
    """Pads on the left, as generation needs."""
    words = {token: number for number, token in enumerate(SPECIAL)}
    words.update({f"w{number}": number for number in range(len(SPECIAL), VOCABULARY)})
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left"
    )
