// Byte pair encoding of words that are divided as by GPT-2. Needs text.h and unicode.h.
//
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

namespace {

enum : uint8_t { OTHER, LETTER, NUMBER, SPACE };
constexpr uint32_t NO_MERGE = UINT32_MAX;

inline uint8_t kind_of(const Character& found) { return class_of(found.point, WORD_STARTS, WORD_CLASSES); }

inline const uint8_t* end_of_run(const uint8_t* at, const uint8_t* end, uint8_t kind) {
    while (at < end) {
        const Character found = read_character(at, end);
        if (kind_of(found) != kind) break;
        at += found.size;
    }
    return at;
}

// 's and its like; 0 if there is none.
inline int64_t contraction(const uint8_t* at, const uint8_t* end) {
    if (*at != '\'' || end - at < 2) return 0;
    if (std::strchr("stmd", at[1]) && at[1]) return 2;
    if (end - at < 3) return 0;
    return (at[1] == 'r' && at[2] == 'e') || (at[1] == 'v' && at[2] == 'e') || (at[1] == 'l' && at[2] == 'l') ? 3 : 0;
}

inline const uint8_t* end_of_word(const uint8_t* at, const uint8_t* end) {
    if (const int64_t size = contraction(at, end)) return at + size;
    const uint8_t* first = at + (*at == ' ' && end - at > 1);
    const uint8_t kind = kind_of(read_character(first, end));
    if (kind != SPACE) return end_of_run(first, end, kind);
    const uint8_t *last = at, *here = at;  // white space, the last of it excepted where a word follows
    while (here < end) {
        const Character found = read_character(here, end);
        if (kind_of(found) != SPACE) return last == at ? here : last;
        last = here, here += found.size;
    }
    return end;
}

inline int64_t find_pair(const Text& text, int32_t left, int32_t right) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const int64_t place = std::lower_bound(text.pairs, text.pairs + text.merges, pair) - text.pairs;
    return place < text.merges && text.pairs[place] == pair ? place : -1;
}

// Merges the pair of the lowest rank, of equal ones the first, until there is none.
inline int64_t merge(const Text& text, Workspace& work, int64_t count) {
    int32_t* const tokens = work.tokens;
    uint32_t* const ranks = work.ranks;  // of the pair that begins there
    const auto look = [&](int64_t n) {
        const int64_t place = n < 0 || n + 1 >= count ? -1 : find_pair(text, tokens[n], tokens[n + 1]);
        if (n >= 0) ranks[n] = place < 0 ? NO_MERGE : text.ranks[place];
    };
    for (int64_t n = 0; n < count; ++n) tokens[n] = (int32_t)text.bytes[work.bytes[n]];
    for (int64_t n = 0; n < count; ++n) look(n);
    while (count > 1) {
        const int64_t best = std::min_element(ranks, ranks + count) - ranks;
        if (ranks[best] == NO_MERGE) break;
        tokens[best] = (int32_t)text.merged[find_pair(text, tokens[best], tokens[best + 1])];
        --count;
        std::copy(tokens + best + 2, tokens + count + 1, tokens + best + 1);
        std::copy(ranks + best + 2, ranks + count + 1, ranks + best + 1);
        look(best - 1);
        look(best);
    }
    return count;
}

template <class Sink>
int encode(const Text& text, Workspace& work, const uint8_t* at, const uint8_t* end, Sink&& push) {
    while (at < end) {
        const uint8_t* const stop = end_of_word(at, end);
        Word word = {work.bytes};
        while (at < stop) {
            const Character found = read_character(at, end);
            at += found.size;
            word.add(found.point);
        }
        if (!word.kept()) return ELMAN_TOO_LONG;
        const int64_t count = merge(text, work, word.size);
        for (int64_t n = 0; n < count; ++n)
            if (const int code = push(work.tokens[n])) return code;
    }
    return ELMAN_OK;
}

}  // namespace
