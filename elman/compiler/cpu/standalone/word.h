// Words between white space, and with PUNCTUATION each mark of its own. Needs text.h and unicode.h.

namespace {

enum : uint8_t { OTHER, SPACE, MARK };

inline uint8_t kind_of(uint32_t point) { return class_of(point, WORD_STARTS, WORD_CLASSES); }

// Calls `push` with each code point in lower case.
template <class Push> void lowered(uint32_t point, Push&& push) {
#if defined(LOWERCASE)
    const uint32_t* const place = std::lower_bound(std::begin(UPPER), std::end(UPPER), point);
    if (place != std::end(UPPER) && *place == point) {
        for (const uint32_t letter : LOWER[place - UPPER])
            if (letter) push(letter);
        return;
    }
#endif
    push(point);
}

// The length of `wanted`, which is ASCII, where the text goes on so in lower case; else 0.
inline int64_t beginning(const uint8_t* at, const uint8_t* end, const char* wanted) {
    const uint8_t* here = at;
    for (; *wanted; ++wanted) {
        if (here == end) return 0;
        const Character found = read_character(here, end);
        uint32_t letters = 0, last = 0;
        lowered(found.point, [&](uint32_t letter) { ++letters, last = letter; });
        if (letters != 1 || last != (uint32_t)*wanted) return 0;
        here += found.size;
    }
    return here - at;
}

inline bool at_space(const uint8_t* at, const uint8_t* end) {
    return at == end || kind_of(read_character(at, end).point) == SPACE;
}

template <class Sink>
int encode(const Text& text, Workspace& work, const uint8_t* at, const uint8_t* end, Sink&& push) {
    Word word = {work.bytes};
    int code = ELMAN_OK;
    const auto finish = [&] {
        if (word.size && !code) code = push(word.kept() ? text.find(word.bytes, word.size) : (int32_t)text.unknown);
        word.size = 0;
    };
    for (bool begins = true; at < end && !code;) {
        const Character found = read_character(at, end);
        const bool space = kind_of(found.point) == SPACE;
        const int64_t closing = begins ? beginning(at, end, "<eos>") : 0;
        if (space) finish();
        if (closing && at_space(at + closing, end)) {  // a text does not contain the end of a text
            code = push((int32_t)text.unknown);
            at += closing;
            continue;
        }
        begins = space;
#if defined(PUNCTUATION)
        if (const int64_t unknown = beginning(at, end, "<unk>")) {
            finish();
            if (!code) code = push((int32_t)text.unknown);
            at += unknown;
            continue;
        }
#endif
        at += found.size;
        if (!space)
            lowered(found.point, [&](uint32_t letter) {
                [[maybe_unused]] const bool alone = kind_of(letter) == MARK;
#if defined(PUNCTUATION)
                if (alone) finish();
#endif
                word.add(letter);
#if defined(PUNCTUATION)
                if (alone) finish();
#endif
            });
    }
    finish();
    return code;
}

}  // namespace
