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

constexpr int64_t LANES = 16;  // rows of a matrix that lie side by side: a panel
constexpr int64_t GAP = 2;  // unused rows after a panel: else neighbours would fall upon each other in the first cache
constexpr int64_t AHEAD = 512;  // bytes that are asked for before they are needed
constexpr int64_t FAR = 1 << 19;  // bytes of a matrix that the second cache will not have kept: only then asking pays
// Panels that are read at the same time: memory answers many readers faster than one. Their sums fit the registers.
// Cores of AMD follow fewer readers: eight were a tenth faster there, sixteen on those of Intel.
#if defined(__AVX512F__) && !defined(__znver3__) && !defined(__znver4__) && !defined(__znver5__)
constexpr int SIDE = 16;
#elif defined(__AVX512F__)
constexpr int SIDE = 8;
#else
constexpr int SIDE = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// S panels; in each, the weights of all its results for the first input, then for the second, and so on. Of few panels
// the sums are taken in C parts, so that additions need not wait for each other.
template <int S, bool far>
inline void panels_fp32(const float* w, const float* x, const float* bias, float* y, int64_t inner) {
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

struct Product {
    const void *weights, *x;
    const float* bias;
    float* y;
    int64_t inner;

    const float* bias_at(int64_t n) const { return bias ? bias + n : nullptr; }
};

template <bool far> struct Floating {
    static int64_t bytes(int64_t inner) { return (inner + GAP) * LANES * sizeof(float); }
    template <int S> static void work(const Product& task, const char* w, const float* bias, float* y) {
        panels_fp32<S, far>((const float*)w, (const float*)task.x, bias, y, task.inner);
    }
};

template <class Form, int S> void some(const Product& task, int64_t panel) {
    const int64_t n = panel * LANES;
    Form::template work<S>(task, (const char*)task.weights + panel * Form::bytes(task.inner), task.bias_at(n), task.y + n);
}

template <class Form> void sides(const void* given, int64_t from, int64_t to) {
    for (int64_t n = from; n < to; ++n) some<Form, SIDE>(*(const Product*)given, n * SIDE);
}

// Most panels are worked on by all threads, or by this one where they are few; the rest in ever smaller numbers, the
// last one aside, for there may be no room behind the results.
template <class Form>
void multiply(const void* packed, const void* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const Product task = {packed, x, bias, y, inner};
    const int64_t full = columns / LANES, left = columns % LANES, together = full / SIDE;
    if (share && together * SIDE * Form::bytes(inner) >= WORTH_SHARING) share(sides<Form>, &task, together);
    else sides<Form>(&task, 0, together);
    int64_t panel = together * SIDE;
    if (full - panel >= 8) some<Form, 8>(task, panel), panel += 8;
    if (full - panel >= 4) some<Form, 4>(task, panel), panel += 4;
    if (full - panel >= 2) some<Form, 2>(task, panel), panel += 2;
    if (full - panel >= 1) some<Form, 1>(task, panel), panel += 1;
    if (left) {
        float added[LANES] = {}, results[LANES];
        if (bias) std::memcpy(added, bias + panel * LANES, left * sizeof(float));
        Form::template work<1>(task, (const char*)packed + panel * Form::bytes(inner), added, results);
        std::memcpy(y + panel * LANES, results, left * sizeof(float));
    }
}

void multiply_fp32(const void* packed, const float* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const bool far = columns * inner * (int64_t)sizeof(float) >= FAR;
    (far ? multiply<Floating<true>> : multiply<Floating<false>>)(packed, x, bias, y, inner, columns);
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

void multiply_int8(const void* packed, const uint8_t* x, const float* bias, float* y, int64_t inner, int64_t columns) {
    const bool far = columns * inner >= FAR;
    (far ? multiply<Rounded<true>> : multiply<Rounded<false>>)(packed, x, bias, y, inner, columns);
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
