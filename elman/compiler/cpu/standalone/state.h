// The memory of one row (step/memory.py): its state, twice, input, output and scratch memory. Needs row.h and model.h.
//
// A sliding window (step/buffers.py) is a longer strip, whose first number says where the window begins.

namespace {

constexpr int64_t CACHE_LINE = 64;
constexpr int64_t HEADER_OF_STRIP = 64;

constexpr int64_t padded(int64_t bytes) { return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE; }

// A part of the state. Of a window: `outer` strips of `total` positions of `inner` bytes, of which `length` are seen.
struct StatePart {
    int64_t bytes, outer, total, length, inner;

    bool slides() const { return outer > 0; }
    int64_t memory() const { return slides() ? padded(HEADER_OF_STRIP + outer * total * inner) : 2 * padded(bytes); }
};

}  // namespace
