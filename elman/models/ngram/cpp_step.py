"""C++ code of the n-gram step: the computation of `tables` for one row, without tensors."""

from collections.abc import Sequence

from elman.models.ngram.tables import NO_TOKEN, ZERO
from elman.tokenizers import EOS_ID

# `weights` holds, after one unused array, for each length from 1: keys, log-probabilities, back-off weights.
SOURCE = """
#include <algorithm>
#include <limits>

constexpr int order = {order};
constexpr int64_t words = {words}, end_of_text = {end}, nothing = {nothing};
constexpr int64_t known[] = {{{known}}}, given_on[] = {{{given_on}}};  // keys and backoffs of each length

static const int64_t* keys_of(const void* const* weights, int length) {{
    return static_cast<const int64_t*>(weights[3 * length - 2]);
}}

static int64_t first_from(const int64_t* keys, int length, int64_t key) {{
    return std::lower_bound(keys, keys + known[length - 1], key) - keys;
}}

static int64_t find(const void* const* weights, int length, int64_t context, int64_t word) {{
    if (context < 0 || word < 0 || word >= words) return nothing;
    const int64_t* keys = keys_of(weights, length);
    const int64_t key = context * words + word, place = first_from(keys, length, key);
    return place < known[length - 1] && keys[place] == key ? place : nothing;
}}

{signature} {{
    const int64_t* past = static_cast<const int64_t*>(state[0]);
    int64_t* after = static_cast<int64_t*>(next[0]);
    float* logits = static_cast<float*>(output);
    int64_t line[order], before[order + 1], context[order + 1];
    std::copy(past, past + order - 1, line);
    line[order - 1] = *static_cast<const int64_t*>(given);
    std::fill(context, context + order + 1, nothing);
    for (int place = 0; place < order; ++place) {{
        std::copy(context, context + order + 1, before);
        context[1] = 0 <= line[place] && line[place] < words ? line[place] : nothing;
        for (int length = 2; length < order; ++length) {{
            const int64_t found = find(weights, length, before[length - 1], line[place]);
            context[length] = line[place] == end_of_text ? nothing : found;  // as a context, <eos> starts a document
        }}
    }}
    float cost[order + 1];  // sum of back-off weights down to n-grams of each length
    cost[order] = 0;
    for (int length = order - 1; length > 0; --length) {{
        const float* backoff = static_cast<const float*>(weights[3 * length]);
        const bool counts = context[length] >= 0 && given_on[length - 1];
        cost[length] = cost[length + 1] + (counts ? backoff[context[length]] : 0.0f);
    }}
    const float* single = static_cast<const float*>(weights[2]);
    for (int64_t word = 0; word < words; ++word) logits[word] = single[word] + cost[1];
    for (int length = 2; length <= order; ++length) {{
        if (context[length - 1] < 0) continue;
        const int64_t* keys = keys_of(weights, length);
        const float* log_prob = static_cast<const float*>(weights[3 * length - 1]);
        const int64_t base = context[length - 1] * words, last = first_from(keys, length, base + words);
        for (int64_t place = first_from(keys, length, base); place < last; ++place)
            // true for sorted keys; the difference of others may overflow
            if (const int64_t word = (int64_t)((uint64_t)keys[place] - (uint64_t)base); 0 <= word && word < words)
                logits[word] = log_prob[place] + cost[length];
    }}
    for (int64_t word = 0; word < words; ++word)
        if (logits[word] < {zero}) logits[word] = -std::numeric_limits<float>::infinity();
    bool ended = false;
    for (int place = order - 1; place > 0; --place) {{
        after[place - 1] = ended ? nothing : line[place];
        ended = ended || line[place] == end_of_text;
    }}
}}
"""


def source(signature: str, words: int, known: Sequence[int], given_on: Sequence[int]) -> str:
    """The code for tables with these numbers of keys and back-off weights per length."""
    numbers = {"order": len(known), "words": words, "end": EOS_ID, "nothing": NO_TOKEN, "zero": f"{ZERO / 2}f"}
    lists = {"known": ", ".join(map(str, known)), "given_on": ", ".join(map(str, given_on))}
    return SOURCE.format(signature=signature, **numbers, **lists)
