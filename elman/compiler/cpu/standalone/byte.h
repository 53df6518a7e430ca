// Tokens are bytes. Needs text.h.

namespace {

template <class Sink> int encode(const Text&, Workspace& work, const uint8_t* at, const uint8_t* end, Sink&& push) {
    while (at < end) {
        const Character found = read_character(at, end);
        at += found.size;
        const int32_t size = write_character(found.point, work.bytes);
        for (int32_t n = 0; n < size; ++n)
            if (const int code = push(work.bytes[n] + 1)) return code;
    }
    return ELMAN_OK;
}

}  // namespace
