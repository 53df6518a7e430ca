// model.bin: a header, then the weights, the state of a beginning text, the tokenizer, and the names of labels.
// Numbers are little-endian; sections begin at multiples of 64 bytes.

namespace {

struct Range {
    uint64_t start, size;
};

struct Header {
    char magic[8];
    uint64_t layout;  // of the program that can run it
    uint64_t checksum;  // of everything behind the header
    uint64_t size;  // of everything
    Range weights, state, text, labels;
};
static_assert(sizeof(Header) == 96);

constexpr char MAGIC[8] = {'e', 'l', 'm', 'a', 'n', ' ', '1', '\n'};
constexpr uint64_t BODY = 128;  // where the sections begin

// CRC-32, as of zlib.
inline uint64_t checksum_of(const uint8_t* bytes, uint64_t size) {
    uint32_t table[256];
    for (uint32_t n = 0; n < 256; ++n) {
        table[n] = n;
        for (int bit = 0; bit < 8; ++bit) table[n] = table[n] >> 1 ^ (table[n] & 1 ? 0xedb88320u : 0);
    }
    uint32_t sum = 0xffffffffu;
    for (uint64_t n = 0; n < size; ++n) sum = sum >> 8 ^ table[(sum ^ bytes[n]) & 0xff];
    return ~sum;
}

inline bool inside(const Range& range, uint64_t size) {
    return range.start % 64 == 0 && range.start >= BODY && range.start <= size && range.size <= size - range.start;
}

// Whether this is a model that the program can run; `header` gets a copy of its header.
inline int check_blob(const uint8_t* data, uint64_t size, Header& header) {
    const uint16_t one = 1;
    uint8_t first;
    std::memcpy(&first, &one, 1);
    if (!first) return ELMAN_NOT_A_MODEL;  // a big-endian processor
    if (size < BODY) return ELMAN_NOT_A_MODEL;
    std::memcpy(&header, data, sizeof(Header));
    if (std::memcmp(header.magic, MAGIC, sizeof(MAGIC))) return ELMAN_NOT_A_MODEL;
    if (header.layout != LAYOUT) return ELMAN_OTHER_MODEL;
    if (header.size != size || header.checksum != checksum_of(data + BODY, size - BODY)) return ELMAN_DAMAGED;
    const Range sections[] = {header.weights, header.state, header.text, header.labels};
    for (const Range& section : sections)
        if (!inside(section, size)) return ELMAN_DAMAGED;
    return header.weights.size == WEIGHT_BYTES && header.state.size == STATE_BYTES ? ELMAN_OK : ELMAN_DAMAGED;
}

// A file's contents at a multiple of 64 bytes in new memory, `memory`.
inline int read_file(const char* path, void*& memory, uint8_t*& data, uint64_t& size) {
    std::FILE* const file = std::fopen(path, "rb");
    if (!file) return ELMAN_CANNOT_READ;
    int code = ELMAN_CANNOT_READ;
    long end = -1;
    if (!std::fseek(file, 0, SEEK_END) && (end = std::ftell(file)) >= 0 && !std::fseek(file, 0, SEEK_SET)) {
        size = (uint64_t)end;
        memory = std::malloc((size_t)size + 64);
        code = memory ? ELMAN_OK : ELMAN_NO_MEMORY;
        if (memory) {
            data = (uint8_t*)memory + (64 - (uintptr_t)memory % 64) % 64;
            if (std::fread(data, 1, (size_t)size, file) != size) code = ELMAN_CANNOT_READ;
        }
    }
    std::fclose(file);
    return code;
}

}  // namespace
