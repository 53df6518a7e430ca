// UTF-8, read as Python's decoder reads it with errors="replace": each longest part of an invalid sequence is U+FFFD.

namespace {

constexpr uint32_t REPLACEMENT = 0xfffd;

struct Character {
    uint32_t point;
    int32_t size;  // bytes
    bool cut;  // more bytes could complete it
};

inline Character read_character(const uint8_t* at, const uint8_t* end) {
    const uint32_t lead = *at;
    if (lead < 0x80) return {lead, 1, false};
    const int32_t size = lead < 0xc2 || lead > 0xf4 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (!size) return {REPLACEMENT, 1, false};
    uint32_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;  // of the second byte: no overlong form,
    uint32_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;  // surrogate, or point above U+10FFFF
    uint32_t point = lead & (0x7fu >> size);
    for (int32_t n = 1; n < size; ++n) {
        if (at + n == end) return {REPLACEMENT, n, true};
        if (at[n] < low || at[n] > high) return {REPLACEMENT, n, false};
        point = point << 6 | (at[n] & 0x3fu);
        low = 0x80, high = 0xbf;
    }
    return {point, size, false};
}

// Writes up to four bytes; returns their number.
inline int32_t write_character(uint32_t point, uint8_t* to) {
    if (point < 0x80) {
        to[0] = (uint8_t)point;
        return 1;
    }
    const int32_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (int32_t n = size - 1; n > 0; --n, point >>= 6) to[n] = (uint8_t)(0x80 | (point & 0x3f));
    to[0] = (uint8_t)(size == 2 ? 0xc0 | point : size == 3 ? 0xe0 | point : 0xf0 | point);
    return size;
}

// Bytes that come in pieces, to valid UTF-8: no character is written before it is complete.
struct StreamDecoder {
    uint8_t kept[4];
    int32_t size = 0;

    // `to` has room for three bytes for each byte, and three more.
    int64_t push(const uint8_t* bytes, int64_t count, uint8_t* to) {
        uint8_t* out = to;
        for (int64_t n = 0; n < count; ++n) {
            kept[size++] = bytes[n];
            while (size) {
                const Character found = read_character(kept, kept + size);
                if (found.cut) break;
                out += write_character(found.point, out);
                size -= found.size;
                std::memmove(kept, kept + found.size, (size_t)size);
            }
        }
        return out - to;
    }

    int64_t flush(uint8_t* to) {
        const int64_t written = size ? write_character(REPLACEMENT, to) : 0;
        size = 0;
        return written;
    }
};

}  // namespace
