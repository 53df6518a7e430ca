// Tokens are characters, after normalization with NORMALIZE. Needs text.h, and with it normalize.h.

namespace {

template <class Sink>
int encode(const Text& text, Workspace& work, const uint8_t* at, const uint8_t* end, Sink&& push) {
    const auto take = [&](uint32_t point) { return push(text.find(work.bytes, write_character(point, work.bytes))); };
#if defined(NORMALIZE)
    Normalizer<decltype(take)> normalizer(take);
#endif
    while (at < end) {
        const Character found = read_character(at, end);
        at += found.size;
#if defined(NORMALIZE)
        if (const int code = normalizer.push(found.point)) return code;
#else
        if (const int code = take(found.point)) return code;
#endif
    }
#if defined(NORMALIZE)
    return normalizer.flush();
#else
    return ELMAN_OK;
#endif
}

}  // namespace
