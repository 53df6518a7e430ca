// Kernels of single steps: matrix-vector products (GEMV), gathers, top-k. Needs scalar_math.h.
#include <algorithm>
#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace {

struct complex {
    float real, imaginary;
    complex(float real = 0, float imaginary = 0) : real(real), imaginary(imaginary) {}
};
inline complex operator+(complex a, complex b) { return {a.real + b.real, a.imaginary + b.imaginary}; }
inline complex operator-(complex a, complex b) { return {a.real - b.real, a.imaginary - b.imaginary}; }
inline complex operator*(complex a, complex b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

// GEMV --------------------------------------------------------------------------------------------------------------

constexpr int64_t LANES = 16;  // columns of a panel (matmul.py)
constexpr int64_t GAP = 2;  // unused rows behind a panel: else the panels read together would alias in L1
constexpr int64_t AHEAD = 512;  // prefetch distance in bytes
constexpr int64_t FAR = 1 << 19;  // bytes of a matrix that L2 has not kept since the last step; only then prefetch
// Panels read at the same time: several streams use more memory bandwidth than one, and their sums fit the registers.
// AMD's prefetchers follow fewer streams: eight were 10 % faster there, sixteen on Intel.
#if defined(__AVX512F__) && !defined(__znver3__) && !defined(__znver4__) && !defined(__znver5__)
constexpr int SIDE = 16;
#elif defined(__AVX512F__)
constexpr int SIDE = 8;
#else
constexpr int SIDE = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

struct Product {
    const void *weights, *x;
    const float* bias;
    float* y;
    int64_t inner;
};

template <bool far> struct Floating {
    static int64_t bytes(int64_t inner) { return (inner + GAP) * LANES * sizeof(float); }
    // S panels at once. With few panels each sum has C accumulators, to hide the latency of dependent additions.
    template <int S> static void work(const Product& task, const char* panels, const float* bias, float* y) {
        const float *w = (const float*)panels, *x = (const float*)task.x;
        const int64_t inner = task.inner;
        constexpr int C = S < 8 ? 8 / S : 1;
        const int64_t size = (inner + GAP) * LANES;
        Floats sums[C][S] = {};
        int64_t k = 0;
        for (; k + C <= inner; k += C)
            for (int c = 0; c < C; ++c)
                for (int s = 0; s < S; ++s) {
                    const float* here = w + s * size + (k + c) * LANES;
                    if constexpr (far) __builtin_prefetch((const char*)here + AHEAD);
                    sums[c][s] += *(const Floats*)here * x[k + c];
                }
        for (; k < inner; ++k)
            for (int s = 0; s < S; ++s) sums[0][s] += *(const Floats*)(w + s * size + k * LANES) * x[k];
        for (int s = 0; s < S; ++s) {
            Floats sum = sums[0][s];
            for (int c = 1; c < C; ++c) sum += sums[c][s];
            if (bias) sum += *(const Floats*)(bias + s * LANES);
            *(Floats*)(y + s * LANES) = sum;
        }
    }
};

template <class Form, int S> void gemv_panels(const Product& task, int64_t panel) {
    const int64_t n = panel * LANES;
    const float* bias = task.bias ? task.bias + n : nullptr;
    Form::template work<S>(task, (const char*)task.weights + panel * Form::bytes(task.inner), bias, task.y + n);
}

// y = x @ W + bias, in groups of SIDE panels; the rest goes in groups of 8, 4, 2 and 1; the last, incomplete panel
// through a buffer, since y has no room behind it.
template <class Form>
void gemv(const void* packed, const void* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const Product task = {packed, x, bias, y, inner};
    const int64_t full = columns / LANES, left = columns % LANES;
    int64_t panel = 0;
    for (; full - panel >= SIDE; panel += SIDE) gemv_panels<Form, SIDE>(task, panel);
    if (full - panel >= 8) gemv_panels<Form, 8>(task, panel), panel += 8;
    if (full - panel >= 4) gemv_panels<Form, 4>(task, panel), panel += 4;
    if (full - panel >= 2) gemv_panels<Form, 2>(task, panel), panel += 2;
    if (full - panel >= 1) gemv_panels<Form, 1>(task, panel), panel += 1;
    if (left) {
        float added[LANES] = {}, results[LANES];
        if (bias) std::memcpy(added, bias + panel * LANES, left * sizeof(float));
        Form::template work<1>(task, (const char*)packed + panel * Form::bytes(inner), added, results);
        std::memcpy(y + panel * LANES, results, left * sizeof(float));
    }
}

void gemv_fp32(const void* packed, const float* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const bool far = columns * inner * (int64_t)sizeof(float) >= FAR;
    (far ? gemv<Floating<true>> : gemv<Floating<false>>)(packed, x, bias, y, inner, columns);
}

// Asymmetric quantisation: x = scale * (q - zero) with q from 0 to 255.
struct Quantised {
    float scale;
    int32_t zero;
    char unused[56];
    uint8_t values[];
};

void quantise(const float* x, int64_t size, uint8_t* target) {
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
        q->values[k] = (uint8_t)(number < 0 ? 0 : number > 255 ? 255 : number);
    }
    for (int64_t k = size; k % 4; ++k) q->values[k] = 0;
}

// Four rows of 16 columns fill a vector (VNNI). Behind each panel come the scales and sums of its columns.
template <int S, bool far>
inline void dots_int8(const int8_t* w, const uint8_t* x, int64_t fours, int64_t bytes, int32_t* sums) {
#if defined(__AVX512VNNI__)
    constexpr int C = S < 8 ? 8 / S : 1;
    __m512i parts[C][S];
    for (int c = 0; c < C; ++c)
        for (int s = 0; s < S; ++s) parts[c][s] = _mm512_setzero_si512();
    const auto add = [&](int c, int64_t k) {
        const __m512i inputs = _mm512_set1_epi32(((const int32_t*)x)[k]);
        for (int s = 0; s < S; ++s) {
            const int8_t* here = w + s * bytes + k * 64;
            if constexpr (far) __builtin_prefetch(here + AHEAD);
            parts[c][s] = _mm512_dpbusd_epi32(parts[c][s], inputs, _mm512_loadu_si512(here));
        }
    };
    int64_t k = 0;
    for (; k + C <= fours; k += C)
        for (int c = 0; c < C; ++c) add(c, k + c);
    for (; k < fours; ++k) add(0, k);
    for (int s = 0; s < S; ++s) {
        for (int c = 1; c < C; ++c) parts[0][s] = _mm512_add_epi32(parts[0][s], parts[c][s]);
        _mm512_storeu_si512(sums + s * LANES, parts[0][s]);
    }
#else
    std::memset(sums, 0, S * LANES * sizeof(int32_t));
    for (int64_t s = 0; s < S; ++s, w += bytes, sums += LANES)
        for (int64_t k = 0; k < fours; ++k)
            for (int64_t row = 0; row < LANES; ++row)
                for (int64_t part = 0; part < 4; ++part)
                    sums[row] += (int32_t)w[k * 64 + row * 4 + part] * x[k * 4 + part];
#endif
}

template <bool far> struct Rounded {
    static int64_t bytes(int64_t inner) { return ((inner + 3) / 4 * 4 + 8) * LANES; }
    template <int S> static void work(const Product& task, const char* w, const float* bias, float* y) {
        const Quantised* x = (const Quantised*)task.x;
        const int64_t fours = (task.inner + 3) / 4, size = bytes(task.inner);
        int32_t sums[S * LANES];
        dots_int8<S, far>((const int8_t*)w, x->values, fours, size, sums);
        for (int64_t s = 0; s < S; ++s) {
            const float* scales = (const float*)(w + s * size + fours * 64);
            const int32_t* totals = (const int32_t*)(scales + LANES);
            for (int64_t row = 0, n = s * LANES; row < LANES; ++row, ++n)
                y[n] = (float)(sums[n] - x->zero * totals[row]) * (scales[row] * x->scale) + (bias ? bias[n] : 0.0f);
        }
    }
};

void gemv_int8(const void* packed, const uint8_t* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const bool far = columns * inner >= FAR;
    (far ? gemv<Rounded<true>> : gemv<Rounded<false>>)(packed, x, bias, y, inner, columns);
}

// Y = A @ B of computed matrices in any layout: batch, rows, inner and columns, then the strides of both.
template <class T>
void batched_matmul(
    const T* a, const T* b, T* y, int64_t batch, int64_t rows, int64_t inner, int64_t columns, int64_t a_batch,
    int64_t a_row, int64_t a_inner, int64_t b_batch, int64_t b_inner, int64_t b_column) {
    for (int64_t n = 0; n < batch; ++n)
        for (int64_t row = 0; row < rows; ++row) {
            const T *from = a + n * a_batch + row * a_row, *with = b + n * b_batch;
            T* __restrict to = y + (n * rows + row) * columns;
            if (b_column == 1 && columns > 1) {
                for (int64_t column = 0; column < columns; ++column) to[column] = 0;
                for (int64_t k = 0; k < inner; ++k) {
                    const T factor = from[k * a_inner];
                    for (int64_t column = 0; column < columns; ++column) to[column] += factor * with[k * b_inner + column];
                }
            } else {
                for (int64_t column = 0; column < columns; ++column) {
                    const T* other = with + column * b_column;
                    T sum = 0;
                    if (a_inner == 1 && b_inner == 1)
                        for (int64_t k = 0; k < inner; ++k) sum += from[k] * other[k];
                    else
                        for (int64_t k = 0; k < inner; ++k) sum += from[k * a_inner] * other[k * b_inner];
                    to[column] = sum;
                }
            }
        }
}

// The address of a window of `window_length` positions in its strip (buffers.py), after which its start is advanced by `count`.
// The window is moved back to the beginning of the strip when no new positions fit behind it.
template <class T>
T* advance_window(void* memory, int64_t outer, int64_t length, int64_t inner, int64_t window_length, int64_t count) {
    int64_t& first = *(int64_t*)memory;
    T* strip = (T*)((char*)memory + 64);
    if (first + window_length + count > length) {
        for (int64_t n = 0; n < outer; ++n)
            std::memmove(
                strip + n * length * inner, strip + (n * length + first) * inner, window_length * inner * sizeof(T));
        first = 0;
    }
    T* window = strip + first * inner;
    first += count;
    return window;
}

// Negative indices count from the end; indices out of range are clamped.
inline int64_t clamp_index(int64_t index, int64_t rows) {
    index = index < 0 ? index + rows : index;
    return index < 0 ? 0 : index >= rows ? rows - 1 : index;
}

template <class T>
void gather_rows(const T* table, int64_t rows, int64_t size, const int64_t* indices, int64_t count, T* y) {
    for (int64_t n = 0; n < count; ++n) {
        const T* row = table + clamp_index(indices[n], rows) * size;
        std::copy(row, row + size, y + n * size);
    }
}

// torch.gather along the last axis: for each of `rows` vectors, the elements at its own `count` indices.
template <class T>
void gather(const T* x, int64_t rows, int64_t size, const int64_t* indices, int64_t count, T* y) {
    for (int64_t row = 0; row < rows; ++row, x += size)
        for (int64_t n = 0; n < count; ++n) *y++ = x[clamp_index(*indices++, size)];
}

// For each of `rows` vectors: its `count` largest elements, in descending order, and their indices; ties by index.
template <class T>
void topk(const T* x, int64_t rows, int64_t size, int64_t count, T* y, int64_t* indices) {
    for (int64_t row = 0; row < rows; ++row, x += size, y += count, indices += count)
        for (int64_t index = 0; index < size; ++index) {
            int64_t n = std::min(index, count);
            for (; n > 0 && (x[index] > y[n - 1] || (x[index] != x[index] && y[n - 1] == y[n - 1])); --n)
                if (n < count) y[n] = y[n - 1], indices[n] = indices[n - 1];
            if (n < count) y[n] = x[index], indices[n] = index;
        }
}

}  // namespace
