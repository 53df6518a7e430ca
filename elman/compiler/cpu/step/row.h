// What steps and the kernels of matrix products share. Needs scalar_math.h.
#include <algorithm>

// The memory of a row, and what its next product reads and writes.
struct Row {
    char* scratch;
    void* given;
    void** state;
    void** next;
    void* output;
    const void* x;
    const float* bias;
    float* y;
};

// y = x @ packed + bias, for all rows: gemm_fp32 and gemm_int8 of products.h, which is compiled once for all programs.
typedef void (*Gemm)(const void* packed, Row* const* rows, int64_t count, int64_t inner, int64_t columns);
// Calls a part of a program for each row.
typedef void (*Part)(const void* const* weights, Row& row);
typedef void (*Each)(Part part, const void* const* weights, Row* const* rows, int64_t count);

namespace {

// Asymmetric quantisation: x = scale * (q - zero) with q from 0 to 255.
struct Quantised {
    float scale;
    int32_t zero;
    char unused[56];
    uint8_t* values() { return (uint8_t*)(this + 1); }
    const uint8_t* values() const { return (const uint8_t*)(this + 1); }
};

inline void quantise(const float* x, int64_t size, uint8_t* target) {
    Quantised* q = (Quantised*)target;
    float low = 0, high = 0;
    for (int64_t k = 0; k < size; ++k) {
        low = low < x[k] ? low : x[k];
        high = high > x[k] ? high : x[k];
    }
    const float scale = high > low ? (high - low) / 255.0f : 1.0f, inverse = 1.0f / scale;
    const int32_t zero = (int32_t)__builtin_rintf(-low * inverse);
    q->scale = scale;
    q->zero = zero;
    for (int64_t k = 0; k < size; ++k) {
        const int32_t number = (int32_t)__builtin_rintf(x[k] * inverse) + zero;
        q->values()[k] = (uint8_t)(number < 0 ? 0 : number > 255 ? 255 : number);
    }
    for (int64_t k = size; k % 4; ++k) q->values()[k] = 0;
}

}  // namespace
