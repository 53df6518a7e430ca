// What generated steps are made of, beside the functions of numbers.h: products.
#include <algorithm>
#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

typedef void (*Part)(const void* task, int64_t from, int64_t to);
// Does a task in parts, by several threads; nothing where only one works.
extern "C" {
void (*share)(Part part, const void* task, int64_t count) = nullptr;
}

namespace {

constexpr int64_t WORTH_SHARING = 1 << 19;  // bytes of a product: below, waking the others takes as long

struct complex {
    float real, imaginary;
    complex(float real = 0, float imaginary = 0) : real(real), imaginary(imaginary) {}
};
inline complex operator+(complex a, complex b) { return {a.real + b.real, a.imaginary + b.imaginary}; }
inline complex operator-(complex a, complex b) { return {a.real - b.real, a.imaginary - b.imaginary}; }
inline complex operator*(complex a, complex b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

// Products ---------------------------------------------------------------------------------------------------------

constexpr int64_t LANES = 16;  // rows of a matrix that lie side by side
constexpr int STREAMS = 4;  // places of a panel that are read at the same time: memory answers several faster than one
constexpr int64_t AHEAD = 1024;  // bytes that are asked for before they are needed
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// Panels of V * 16 results; in each, the weights of all of them for the first input, then for the second, and so on.
template <int V>
inline void panel_fp32(const float* w, const float* x, const float* bias, float* y, int64_t inner) {
    Floats sums[STREAMS][V] = {};
    const int64_t part = inner / STREAMS;
    for (int64_t k = 0; k < part; ++k)
        for (int64_t s = 0, at = k; s < STREAMS; ++s, at += part)
            for (int v = 0; v < V; ++v) {
                const float* here = w + (at * V + v) * LANES;
                __builtin_prefetch((const char*)here + AHEAD);
                sums[s][v] += *(const Floats*)here * x[at];
            }
    for (int64_t k = STREAMS * part; k < inner; ++k)
        for (int v = 0; v < V; ++v) sums[0][v] += *(const Floats*)(w + (k * V + v) * LANES) * x[k];
    for (int v = 0; v < V; ++v) {
        Floats sum = (sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v]);
        if (bias) sum += *(const Floats*)(bias + v * LANES);
        *(Floats*)(y + v * LANES) = sum;
    }
}

template <int V>
inline void last_fp32(const float* w, const float* x, const float* bias, float* y, int64_t inner, int64_t left) {
    float added[V * LANES] = {}, results[V * LANES];
    if (bias) std::memcpy(added, bias, left * sizeof(float));
    panel_fp32<V>(w, x, added, results, inner);
    std::memcpy(y, results, left * sizeof(float));
}

struct Product {
    const void *weights, *x;
    const float* bias;
    float* y;
    int64_t inner;

    const float* bias_at(int64_t n) const { return bias ? bias + n : nullptr; }
};

// `count` panels are worked on by all threads, or by this one where they are few.
void divide(Part part, const Product& task, int64_t count, int64_t bytes) {
    if (share && count * bytes >= WORTH_SHARING) share(part, &task, count);
    else part(&task, 0, count);
}

void panels_fp32(const void* given, int64_t from, int64_t to) {
    const Product& task = *(const Product*)given;
    for (int64_t n = from * 4 * LANES; n < to * 4 * LANES; n += 4 * LANES)
        panel_fp32<4>(
            (const float*)task.weights + n * task.inner, (const float*)task.x, task.bias_at(n), task.y + n, task.inner);
}

void multiply_fp32(const void* packed, const float* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const int64_t full = columns / (4 * LANES), n = full * 4 * LANES, left = columns - n;
    const Product task = {packed, x, bias, y, inner};
    divide(panels_fp32, task, full, 4 * LANES * inner * sizeof(float));
    const float *w = (const float*)packed + n * inner, *added = task.bias_at(n);
    if (left > 3 * LANES) last_fp32<4>(w, x, added, y + n, inner, left);
    else if (left > 2 * LANES) last_fp32<3>(w, x, added, y + n, inner, left);
    else if (left > LANES) last_fp32<2>(w, x, added, y + n, inner, left);
    else if (left) last_fp32<1>(w, x, added, y + n, inner, left);
}

// x = scale * (q - zero) with q from 0 to 255
struct Quantised {
    float scale;
    int32_t zero;
    char unused[56];
    uint8_t values[];
};

void quantise(const float* x, int64_t size, uint8_t* place) {
    Quantised* q = (Quantised*)place;
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

// Four inputs of 16 results fill a vector. After each panel's weights come scales and sums of its rows.
template <int V> inline void dot_int8(const int8_t* w, const uint8_t* x, int64_t fours, int32_t* sums) {
#if defined(__AVX512VNNI__)
    __m512i parts[STREAMS][V];
    for (int s = 0; s < STREAMS; ++s)
        for (int v = 0; v < V; ++v) parts[s][v] = _mm512_setzero_si512();
    const int64_t part = fours / STREAMS;
    const auto add = [&](int s, int64_t at) {
        const __m512i inputs = _mm512_set1_epi32(((const int32_t*)x)[at]);
        for (int v = 0; v < V; ++v)
            parts[s][v] = _mm512_dpbusd_epi32(parts[s][v], inputs, _mm512_loadu_si512(w + (at * V + v) * 64));
    };
    for (int64_t k = 0; k < part; ++k)
        for (int s = 0; s < STREAMS; ++s) add(s, s * part + k);
    for (int64_t k = STREAMS * part; k < fours; ++k) add(0, k);
    for (int v = 0; v < V; ++v) {
        const __m512i first = _mm512_add_epi32(parts[0][v], parts[1][v]);
        const __m512i second = _mm512_add_epi32(parts[2][v], parts[3][v]);
        _mm512_storeu_si512(sums + v * LANES, _mm512_add_epi32(first, second));
    }
#else
    std::memset(sums, 0, V * LANES * sizeof(int32_t));
    for (int64_t k = 0; k < fours; ++k, w += V * 64)
        for (int64_t row = 0; row < V * LANES; ++row)
            for (int64_t part = 0; part < 4; ++part) sums[row] += (int32_t)w[row * 4 + part] * x[k * 4 + part];
#endif
}

template <int V>
inline void panel_int8(
    const int8_t* w, const Quantised* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const int64_t fours = (inner + 3) / 4;
    int32_t sums[V * LANES];
    dot_int8<V>(w, x->values, fours, sums);
    const float* scales = (const float*)(w + fours * V * 64);
    const int32_t* totals = (const int32_t*)(scales + V * LANES);
    for (int64_t row = 0; row < columns; ++row)
        y[row] = (float)(sums[row] - x->zero * totals[row]) * (scales[row] * x->scale) + (bias ? bias[row] : 0.0f);
}

int64_t panel_bytes(int64_t inner) { return ((inner + 3) / 4 * 4 + 8) * 4 * LANES; }

void panels_int8(const void* given, int64_t from, int64_t to) {
    const Product& task = *(const Product*)given;
    for (int64_t n = from; n < to; ++n)
        panel_int8<4>(
            (const int8_t*)task.weights + n * panel_bytes(task.inner), (const Quantised*)task.x,
            task.bias_at(n * 4 * LANES), task.y + n * 4 * LANES, task.inner, 4 * LANES);
}

void multiply_int8(const void* packed, const uint8_t* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const int64_t full = columns / (4 * LANES), n = full * 4 * LANES, left = columns - n;
    const Product task = {packed, x, bias, y, inner};
    divide(panels_int8, task, full, panel_bytes(inner));
    const int8_t* w = (const int8_t*)packed + full * panel_bytes(inner);
    const Quantised* vector = (const Quantised*)x;
    const float* added = task.bias_at(n);
    if (left > 3 * LANES) panel_int8<4>(w, vector, added, y + n, inner, left);
    else if (left > 2 * LANES) panel_int8<3>(w, vector, added, y + n, inner, left);
    else if (left > LANES) panel_int8<2>(w, vector, added, y + n, inner, left);
    else if (left) panel_int8<1>(w, vector, added, y + n, inner, left);
}

// Matrices that change from step to step, in any layout: batch, rows, inner and columns, then the strides of both.
template <class T>
void product(
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

// Where a window of `places` lies in its strip, which is moved back to the start when no new places fit behind it.
template <class T>
T* slide(void* memory, int64_t outer, int64_t length, int64_t inner, int64_t places, int64_t count) {
    int64_t& first = *(int64_t*)memory;
    T* strip = (T*)((char*)memory + 64);
    if (first + places + count > length) {
        for (int64_t n = 0; n < outer; ++n)
            std::memmove(
                strip + n * length * inner, strip + (n * length + first) * inner, places * inner * sizeof(T));
        first = 0;
    }
    T* window = strip + first * inner;
    first += count;
    return window;
}

// Places outside of a table are taken as the nearest inside, negative ones count from the end.
inline int64_t inside(int64_t place, int64_t rows) {
    place = place < 0 ? place + rows : place;
    return place < 0 ? 0 : place >= rows ? rows - 1 : place;
}

template <class T>
void take_rows(const T* table, int64_t rows, int64_t size, const int64_t* places, int64_t count, T* y) {
    for (int64_t n = 0; n < count; ++n) {
        const T* row = table + inside(places[n], rows) * size;
        std::copy(row, row + size, y + n * size);
    }
}

// Of each of `rows` vectors: the numbers at `count` places of its own.
template <class T>
void take_places(const T* x, int64_t rows, int64_t size, const int64_t* places, int64_t count, T* y) {
    for (int64_t row = 0; row < rows; ++row, x += size)
        for (int64_t n = 0; n < count; ++n) *y++ = x[inside(*places++, size)];
}

// Of each of `rows` vectors: the `count` largest numbers, the largest first, and their places; of equals the first.
template <class T>
void take_largest(const T* x, int64_t rows, int64_t size, int64_t count, T* y, int64_t* places) {
    for (int64_t row = 0; row < rows; ++row, x += size, y += count, places += count)
        for (int64_t place = 0; place < size; ++place) {
            int64_t n = std::min(place, count);
            for (; n > 0 && (x[place] > y[n - 1] || (x[place] != x[place] && y[n - 1] == y[n - 1])); --n)
                if (n < count) y[n] = y[n - 1], places[n] = places[n - 1];
            if (n < count) y[n] = x[place], places[n] = place;
        }
}

}  // namespace
