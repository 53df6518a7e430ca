// The tokenizer's part of model.bin, and how tokens are found and spelled. Needs utf8.h, and unicode.h for MERGES (BPE).

namespace {

constexpr int64_t LONGEST = 1 << 15;  // bytes of a word that is divided into tokens

// Reads arrays one after another, each from a multiple of 8 bytes.
struct Section {
    const uint8_t* at;
    const uint8_t* end;

    template <class T> bool take(int64_t count, const T*& array) {
        if (count < 0 || (uint64_t)count > (uint64_t)(end - at) / sizeof(T)) return false;
        array = (const T*)at;
        const int64_t bytes = count * (int64_t)sizeof(T), padded = (bytes + 7) / 8 * 8;
        at += padded < end - at ? padded : end - at;
        return true;
    }
};

inline bool all_below(const uint32_t* numbers, int64_t count, int64_t limit) {
    for (int64_t n = 0; n < count; ++n)
        if (numbers[n] >= limit) return false;
    return true;
}

struct Text {
    int64_t vocab, end, start, unknown;  // `unknown` is -1 if there is none
    int64_t longest;  // bytes of a token
    const uint32_t* offsets;  // token n is spelled by spellings[offsets[n]] up to offsets[n + 1]
    const uint8_t* spellings;
    int64_t words, merges, openings;
    const uint32_t* sorted;  // tokens of words and characters, by their spelling
    const uint32_t* bytes;  // the token of each byte (BPE)
    const uint64_t* pairs;  // left token * 2^32 + right token, sorted
    const uint32_t* ranks;  // of each pair: which of several is merged first
    const uint32_t* merged;  // and the token that it becomes
    const uint32_t* opening;  // tokens before a text without a prompt

    // Whether all of it lies inside of the section, and all tokens in the vocabulary.
    bool read(Section section) {
        const int64_t* numbers;
        if (!section.take(9, numbers)) return false;
        vocab = numbers[0], end = numbers[1], start = numbers[2], unknown = numbers[3];
        const int64_t spelled = numbers[4];
        const int64_t letters = numbers[6];
        words = numbers[5], merges = numbers[7], openings = numbers[8];
        if (vocab < 1 || vocab > INT32_MAX || !has(end) || !has(start) || !(unknown == -1 || has(unknown))) return false;
        if (!section.take(vocab + 1, offsets) || !section.take(spelled, spellings)) return false;
        if (!section.take(words, sorted) || !section.take(letters, bytes)) return false;
        if (!section.take(merges, pairs) || !section.take(merges, ranks) || !section.take(merges, merged)) return false;
        if (!section.take(openings, opening) || offsets[0] != 0 || offsets[vocab] != spelled) return false;
#if defined(MERGES)
        if (letters != 256) return false;
#endif
        longest = 0;
        for (int64_t n = 0; n < vocab; ++n) {
            if (offsets[n] > offsets[n + 1]) return false;
            longest = std::max(longest, (int64_t)offsets[n + 1] - offsets[n]);
        }
        const bool within = all_below(sorted, words, vocab) && all_below(merged, merges, vocab);
        return within && all_below(bytes, letters, vocab) && all_below(opening, openings, vocab);
    }

    bool has(int64_t token) const { return token >= 0 && token < vocab; }
    const uint8_t* spelling(int64_t token) const { return spellings + offsets[token]; }
    int64_t size(int64_t token) const { return (int64_t)offsets[token + 1] - offsets[token]; }

    // The token that is spelled so, or the unknown one.
    int32_t find(const uint8_t* bytes, int64_t count) const {
        int64_t from = 0, to = words;
        while (from < to) {
            const int64_t middle = (from + to) / 2, token = sorted[middle], length = size(token);
            int order = std::memcmp(spelling(token), bytes, (size_t)std::min(length, count));
            if (!order) order = length < count ? -1 : length > count;
            if (!order) return (int32_t)token;
            (order < 0 ? from : to) = order < 0 ? middle + 1 : middle;
        }
        return (int32_t)unknown;
    }
};

// The word that is being read, as bytes.
struct Word {
    uint8_t* bytes;  // room for LONGEST + 4
    int64_t size = 0;  // above LONGEST: too long to be kept

    void add(uint32_t point) {
        if (size <= LONGEST) size += write_character(point, bytes + size);
    }
    bool kept() const { return size <= LONGEST; }
};

// The memory of an encoder.
struct Workspace {
    uint8_t bytes[LONGEST + 4];
#if defined(MERGES)
    int32_t tokens[LONGEST];
    uint32_t ranks[LONGEST];
#endif
};

// Code points by class: the class of `starts[n]` up to `starts[n + 1]` is `classes[n]`.
template <int64_t count> uint8_t class_of(uint32_t point, const uint32_t (&starts)[count], const uint8_t (&classes)[count]) {
    return classes[std::upper_bound(starts, starts + count, point) - starts - 1];
}

}  // namespace
