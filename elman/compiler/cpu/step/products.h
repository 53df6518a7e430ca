// Matrix products with constant packed weights, for all rows at once: y = x @ W + bias. Needs threads.h.
//
// A row's result has the same bits whatever its company: every tile adds the products of an element in the same order,
// by explicit fused multiply-adds, which compilers do not reorder.
#include <algorithm>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

constexpr int64_t LANES = 16;  // columns of a panel (matmul.py)
constexpr int64_t GAP = 2;  // unused rows behind a panel: else the panels read together would alias in L1
constexpr int64_t AHEAD = 512, FURTHER = 4096;  // prefetch distance in bytes, for one row and for several
constexpr int64_t FAR = 1 << 19;  // bytes of a matrix that L2 has not kept since the last step; only then prefetch

#if defined(__AVX512F__)
typedef __m512 Vector;
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__AVX2__) && defined(__FMA__)
typedef __m256 Vector;
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__aarch64__)
typedef float32x4_t Vector;
inline Vector multiply_add(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
#else
typedef float Vector __attribute__((vector_size(16)));
inline Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }
#endif
typedef Vector Unaligned __attribute__((aligned(4), may_alias));
constexpr int VECTORS = LANES * sizeof(float) / sizeof(Vector);

// Sums of one row that are computed at the same time, in panels: they hide the latency of an addition. Where there are
// fewer panels, each column has several sums, of every second product or every fourth …
constexpr int SUMS = VECTORS == 1 ? 8 : 4;
// Panels read at the same time for one row: several streams use more memory bandwidth than one.
// AMD's prefetchers follow fewer streams: eight were 10 % faster there, sixteen on Intel.
#if defined(__AVX512F__) && !defined(__znver3__) && !defined(__znver4__) && !defined(__znver5__)
constexpr int SIDE = 2 * SUMS;
#else
constexpr int SIDE = SUMS;
#endif
// Rows and panels of a tile of several rows: its sums fill the registers.
constexpr int TALL = 6, WIDE = VECTORS == 1 ? 4 : 1;
// With the inputs of its rows side by side a tile can be taller, so that the weights are read less often.
constexpr int MOST = 12;

struct Floats {  // one row of a panel
    Vector part[VECTORS];
};

inline Floats load(const float* from) {
    Floats result;
    for (int n = 0; n < VECTORS; ++n) result.part[n] = ((const Unaligned*)from)[n];
    return result;
}

inline void store(float* to, const Floats& values) {
    for (int n = 0; n < VECTORS; ++n) ((Unaligned*)to)[n] = values.part[n];
}

inline Floats splat(float value) {
    Floats result;
    for (Vector& part : result.part) part = value + Vector{};
    return result;
}

inline Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
    Floats result;
    for (int n = 0; n < VECTORS; ++n) result.part[n] = multiply_add(a.part[n], b.part[n], c.part[n]);
    return result;
}

inline Floats add(const Floats& a, const Floats& b) { return multiply_add(a, splat(1), b); }  // in this order

struct Product {
    const char* weights;
    int64_t inner, columns;
};

// What a tile of R rows reads and writes.
template <int R> struct Tile {
    const void* x[R];
    const float* bias[R];
    float* y[R];
};

// R rows times S panels, with C sums for each column.
template <bool far> struct Floating {
    static int64_t bytes(int64_t inner) { return (inner + GAP) * LANES * sizeof(float); }
    static constexpr bool gathers = VECTORS == 1;
    static int64_t words(int64_t inner) { return inner; }
    static const uint32_t* inputs(const Row& row) { return (const uint32_t*)row.x; }
    template <int R, int S>
    static void gathered(const Tile<R>& rows, const uint32_t* inputs, const char* panels, int64_t inner) {
        const float *w = (const float*)panels, *x = (const float*)inputs;
        const int64_t size = (inner + GAP) * LANES;
        Floats sums[R][S] = {};
        for (int64_t k = 0; k < inner; ++k, x += R) {
            const float* from = w + k * LANES;
            asm("" : "+r"(from));  // else S pointers are moved on
            Floats weights[S];
            for (int s = 0; s < S; ++s) {
                __builtin_prefetch((const char*)(from + s * size) + FURTHER);
                weights[s] = load(from + s * size);
            }
            for (int r = 0; r < R; ++r) {
                const Floats factor = splat(x[r]);
                for (int s = 0; s < S; ++s) sums[r][s] = multiply_add(weights[s], factor, sums[r][s]);
            }
        }
        for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s) {
                const Floats sum = rows.bias[r] ? add(sums[r][s], load(rows.bias[r] + s * LANES)) : sums[r][s];
                store(rows.y[r] + s * LANES, sum);
            }
    }
    template <int R, int S, int C> static void work(const Tile<R>& rows, const char* panels, int64_t inner) {
        const float* w = (const float*)panels;
        const float* x[R];
        for (int r = 0; r < R; ++r) x[r] = (const float*)rows.x[r];
        const int64_t size = (inner + GAP) * LANES;
        Floats sums[R][C][S] = {};
        const auto accumulate = [&](int c, int64_t k) {
            Floats factors[R];
            for (int r = 0; r < R; ++r) factors[r] = splat(x[r][k]);
            const float* from = w + k * LANES;
            if constexpr (R == 1) asm("" : "+r"(from));  // else S pointers are moved on: 12 % slower
            for (int s = 0; s < S; ++s) {
                const float* here = from + s * size;
                if constexpr (far) __builtin_prefetch((const char*)here + AHEAD);
                const Floats weights = load(here);
                for (int r = 0; r < R; ++r) sums[r][c][s] = multiply_add(weights, factors[r], sums[r][c][s]);
            }
        };
        int64_t k = 0;
        for (; k + C <= inner; k += C)
            for (int c = 0; c < C; ++c) accumulate(c, k + c);
        for (; k < inner; ++k) accumulate(0, k);
        for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s) {
                Floats sum = sums[r][0][s];
                for (int c = 1; c < C; ++c) sum = add(sum, sums[r][c][s]);
                if (rows.bias[r]) sum = add(sum, load(rows.bias[r] + s * LANES));
                store(rows.y[r] + s * LANES, sum);
            }
    }
};

template <class Form, int R, int S, int C> void tile(const Product& task, Row* const* rows, int64_t panel) {
    Tile<R> here;
    const int64_t first = panel * LANES;
    const char* weights = task.weights + panel * Form::bytes(task.inner);
    for (int r = 0; r < R; ++r)
        here.x[r] = rows[r]->x, here.bias[r] = rows[r]->bias ? rows[r]->bias + first : nullptr, here.y[r] = rows[r]->y + first;
    if constexpr (S == 1)
        if (const int64_t left = task.columns - first; left < LANES) {  // through a buffer: y has no room behind it
            float added[R][LANES] = {}, results[R][LANES];
            Tile<R> aside = here;
            for (int r = 0; r < R; ++r) {
                if (here.bias[r]) std::memcpy(added[r], here.bias[r], left * sizeof(float));
                aside.bias[r] = added[r], aside.y[r] = results[r];
            }
            Form::template work<R, S, C>(aside, weights, task.inner);
            for (int r = 0; r < R; ++r) std::memcpy(here.y[r], results[r], left * sizeof(float));
            return;
        }
    Form::template work<R, S, C>(here, weights, task.inner);
}

// S panels of `count` rows, at most R.
template <class Form, int R, int S, int C>
void few_rows(const Product& task, Row* const* rows, int64_t count, int64_t panel) {
    if constexpr (R > 1)
        if (count < R) return few_rows<Form, R - 1, S, C>(task, rows, count, panel);
    tile<Form, R, S, C>(task, rows, panel);
}

// S panels of all rows, in tiles of equal height, at most R.
template <class Form, int R, int S, int C>
void all_rows(const Product& task, Row* const* rows, int64_t count, int64_t panel) {
    for (int64_t tiles = (count + R - 1) / R; tiles; --tiles) {
        const int64_t height = (count + tiles - 1) / tiles;
        few_rows<Form, R, S, C>(task, rows, height, panel);
        rows += height, count -= height;
    }
}

// The inputs of many rows, gathered by tiles: the first word of each row of a tile, the second of each …
struct Gathered {
    std::vector<uint32_t> words;
    Row* const* rows;
    int64_t count, tiles, product = 0;

    int64_t first(int64_t tile) const { return count * tile / tiles; }  // tiles of equal height

    template <class Form> void fill(Row* const* all, int64_t number, int64_t inner) {
        const int64_t size = Form::words(inner);
        rows = all, count = number, tiles = (count + MOST - 1) / MOST;
        words.resize(count * size);
        for (int64_t tile = 0; tile < tiles; ++tile) {
            const int64_t start = first(tile), height = first(tile + 1) - start;
            for (int64_t row = 0; row < height; ++row) {
                const uint32_t* from = Form::inputs(*rows[start + row]);
                uint32_t* to = words.data() + start * size + row;
                for (int64_t k = 0; k < size; ++k) to[k * height] = from[k];
            }
        }
    }
};

// S panels of R rows at `start`.
template <class Form, int R, int S>
void gathered_tile(const Product& task, const Gathered& inputs, int64_t start, int64_t panel) {
    Tile<R> here;
    const int64_t column = panel * LANES;
    for (int r = 0; r < R; ++r) {
        const Row& row = *inputs.rows[start + r];
        here.x[r] = row.x, here.bias[r] = row.bias ? row.bias + column : nullptr, here.y[r] = row.y + column;
    }
    const uint32_t* words = inputs.words.data() + start * Form::words(task.inner);
    Form::template gathered<R, S>(here, words, task.weights + panel * Form::bytes(task.inner), task.inner);
}

// Panels `panel` to `end` of a tile of `height` rows, at most R.
template <class Form, int R>
void gathered_panels(const Product& task, const Gathered& inputs, int64_t start, int64_t height, int64_t panel, int64_t end) {
    if constexpr (R > 1)
        if (height < R) return gathered_panels<Form, R - 1>(task, inputs, start, height, panel, end);
    constexpr int S = R > 8 ? 2 : R > 6 ? 3 : 4;
    if (end - panel >= S) gathered_tile<Form, R, S>(task, inputs, start, panel);
    else for (; panel < end; ++panel) gathered_tile<Form, R, 1>(task, inputs, start, panel);
}

// The last panels, fewer than SUMS: in groups of S, S / 2 … 1. Of the tiles here, C * S is always SUMS.
template <class Form, int S> int64_t last_panels(const Product& task, Row* const* rows, int64_t count, int64_t panel) {
    const int64_t all = (S == 1 ? task.columns + LANES - 1 : task.columns) / LANES;  // the incomplete one too
    for (; all - panel >= S; panel += S) all_rows<Form, 2, S, SUMS / S>(task, rows, count, panel);
    if constexpr (S > 1) return last_panels<Form, S / 2>(task, rows, count, panel);
    return panel;
}

// Panels `panel` to `end`, which begin and end at multiples of SIDE or at the last panel; of many rows, of SUMS.
template <template <bool> class Form>
void product(
    const Product& task, Row* const* rows, int64_t count, bool far, const Gathered& inputs, int64_t panel, int64_t end) {
    const int64_t whole = std::min(end, task.columns / LANES / SUMS * SUMS);
    if (count == 1 && far) {
        for (; whole - panel >= SIDE; panel += SIDE) tile<Form<true>, 1, SIDE, 1>(task, rows, panel);
        for (; panel < whole; panel += SUMS) tile<Form<true>, 1, SUMS, 1>(task, rows, panel);
    } else if (count == 1) {
        for (; panel < whole; panel += SUMS) tile<Form<false>, 1, SUMS, 1>(task, rows, panel);
    } else if constexpr (Form<true>::gathers) {
        const int64_t tallest = (count + inputs.tiles - 1) / inputs.tiles, side = tallest > 8 ? 2 : tallest > 6 ? 3 : 4;
        for (; panel < whole; panel = std::min(whole, panel + side))
            for (int64_t tile = 0; tile < inputs.tiles; ++tile) {
                const int64_t start = inputs.first(tile), height = inputs.first(tile + 1) - start;
                gathered_panels<Form<true>, MOST>(task, inputs, start, height, panel, std::min(whole, panel + side));
            }
    } else {
        for (; panel < whole; panel += WIDE) all_rows<Form<true>, TALL, WIDE, 1>(task, rows, count, panel);
    }
    if (panel == end) return;
    if (count > 1 || far) last_panels<Form<true>, SUMS / 2>(task, rows, count, panel);
    else last_panels<Form<false>, SUMS / 2>(task, rows, count, panel);
}

constexpr int64_t SHARED = 1 << 16;  // elements of a matrix of which helpers take a part
constexpr int64_t PART = 16;  // panels that a thread takes at once; half of it where there are many rows
constexpr int64_t MANY = 16;  // rows

std::atomic<int64_t> products = 0;

template <template <bool> class Form>
void product(const void* packed, Row* const* rows, int64_t count, int64_t inner, int64_t columns, bool far) {
    const Product task = {(const char*)packed, inner, columns};
    const int64_t number = ++products;
    const auto part = [&](int64_t from, int64_t to) {
        static thread_local Gathered inputs;  // by each thread for itself
        if (Form<true>::gathers && count > 1 && inputs.product != number) {
            inputs.fill<Form<true>>(rows, count, inner);
            inputs.product = number;
        }
        product<Form>(task, rows, count, far, inputs, from, to);
    };
    if (count) divided(inner * columns >= SHARED, (columns + LANES - 1) / LANES, count < MANY ? PART : PART / 2, part);
}

}  // namespace

ENTRY void gemm_fp32(const void* packed, Row* const* rows, int64_t count, int64_t inner, int64_t columns) {
    product<Floating>(packed, rows, count, inner, columns, inner * columns * (int64_t)sizeof(float) >= FAR);
}

namespace {

#if defined(__AVX512VNNI__)
// Where a tile has several rows, GCC 12 moves the sums of its own function to the stack and back at each step. For one
// row that function is 5 % faster: it reads the weights as an operand in memory.
template <int R> inline __m512i add_dots(__m512i sums, __m512i inputs, __m512i weights) {
    if constexpr (R == 1) return _mm512_dpbusd_epi32(sums, inputs, weights);
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(inputs), "v"(weights));
    return sums;
}
#endif

// Four rows of 16 columns fill a vector (VNNI). Behind each panel come the scales and sums of its columns.
template <bool far, int R, int S, int C>
inline void dots(const int8_t* w, const Quantised* const* rows, int64_t fours, int64_t bytes, int32_t (&sums)[R][S * LANES]) {
#if defined(__AVX512VNNI__)
    const int32_t* x[R];
    for (int r = 0; r < R; ++r) x[r] = (const int32_t*)rows[r]->values();
    __m512i parts[R][C][S];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
            for (int s = 0; s < S; ++s) parts[r][c][s] = _mm512_setzero_si512();
    const auto accumulate = [&](int c, int64_t k) {
        __m512i inputs[R];
        for (int r = 0; r < R; ++r) inputs[r] = _mm512_set1_epi32(x[r][k]);
        for (int s = 0; s < S; ++s) {
            const int8_t* here = w + s * bytes + k * 64;
            if constexpr (far) __builtin_prefetch(here + AHEAD);
            const __m512i weights = _mm512_loadu_si512(here);
            for (int r = 0; r < R; ++r) parts[r][c][s] = add_dots<R>(parts[r][c][s], inputs[r], weights);
        }
    };
    int64_t k = 0;
    for (; k + C <= fours; k += C)
        for (int c = 0; c < C; ++c) accumulate(c, k + c);
    for (; k < fours; ++k) accumulate(0, k);
    for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) {
            for (int c = 1; c < C; ++c) parts[r][0][s] = _mm512_add_epi32(parts[r][0][s], parts[r][c][s]);
            _mm512_storeu_si512(sums[r] + s * LANES, parts[r][0][s]);
        }
#else
    std::memset(sums, 0, sizeof(sums));
    for (int64_t s = 0; s < S; ++s, w += bytes)
        for (int r = 0; r < R; ++r)
            for (int64_t k = 0; k < fours; ++k)
                for (int64_t lane = 0; lane < LANES; ++lane)
                    for (int64_t part = 0; part < 4; ++part)
                        sums[r][s * LANES + lane] += (int32_t)w[k * 64 + lane * 4 + part] * rows[r]->values()[k * 4 + part];
#endif
}

template <bool far> struct Rounded {
    static int64_t bytes(int64_t inner) { return ((inner + 3) / 4 * 4 + 8) * LANES; }
    static int64_t words(int64_t inner) { return (inner + 3) / 4; }
    static const uint32_t* inputs(const Row& row) { return (const uint32_t*)((const Quantised*)row.x)->values(); }
#if defined(__AVX512VNNI__)
    static constexpr bool gathers = true;
    template <int R, int S>
    static void gathered(const Tile<R>& rows, const uint32_t* x, const char* panels, int64_t inner) {
        const int64_t fours = words(inner), size = bytes(inner);
        __m512i sums[R][S];
        for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s) sums[r][s] = _mm512_setzero_si512();
        for (int64_t k = 0; k < fours; ++k, x += R) {
            const char* from = panels + k * 64;
            asm("" : "+r"(from));
            __m512i weights[S];
            for (int s = 0; s < S; ++s) {
                __builtin_prefetch(from + s * size + (R > TALL ? FURTHER : AHEAD));
                weights[s] = _mm512_loadu_si512(from + s * size);
            }
            for (int r = 0; r < R; ++r) {
                const __m512i input = _mm512_set1_epi32((int32_t)x[r]);
                for (int s = 0; s < S; ++s) sums[r][s] = add_dots<2>(sums[r][s], input, weights[s]);
            }
        }
        for (int s = 0; s < S; ++s) {
            const float* scales = (const float*)(panels + s * size + fours * 64);
            const __m512i totals = _mm512_loadu_si512(scales + LANES);
            for (int r = 0; r < R; ++r) {
                const Quantised* q = (const Quantised*)rows.x[r];
                const __m512i numbers = _mm512_sub_epi32(sums[r][s], _mm512_mullo_epi32(_mm512_set1_epi32(q->zero), totals));
                const __m512 factors = _mm512_mul_ps(_mm512_loadu_ps(scales), _mm512_set1_ps(q->scale));
                const __m512 bias = rows.bias[r] ? _mm512_loadu_ps(rows.bias[r] + s * LANES) : _mm512_setzero_ps();
                _mm512_storeu_ps(rows.y[r] + s * LANES, _mm512_fmadd_ps(_mm512_cvtepi32_ps(numbers), factors, bias));
            }
        }
    }
#else
    static constexpr bool gathers = false;
#endif
    template <int R, int S, int C> static void work(const Tile<R>& rows, const char* w, int64_t inner) {
        const Quantised* x[R];
        for (int r = 0; r < R; ++r) x[r] = (const Quantised*)rows.x[r];
        const int64_t fours = (inner + 3) / 4, size = bytes(inner);
        int32_t sums[R][S * LANES];
        dots<far, R, S, C>((const int8_t*)w, x, fours, size, sums);
        for (int64_t s = 0; s < S; ++s) {
            const float* scales = (const float*)(w + s * size + fours * 64);
            const int32_t* totals = (const int32_t*)(scales + LANES);
            for (int r = 0; r < R; ++r) {
                float numbers[LANES], factors[LANES];
                for (int64_t lane = 0; lane < LANES; ++lane) {
                    numbers[lane] = (float)(sums[r][s * LANES + lane] - x[r]->zero * totals[lane]);
                    factors[lane] = scales[lane] * x[r]->scale;
                }
                const Floats bias = rows.bias[r] ? load(rows.bias[r] + s * LANES) : splat(0);
                store(rows.y[r] + s * LANES, multiply_add(load(numbers), load(factors), bias));
            }
        }
    }
};

}  // namespace

ENTRY void gemm_int8(const void* packed, Row* const* rows, int64_t count, int64_t inner, int64_t columns) {
    product<Rounded>(packed, rows, count, inner, columns, inner * columns >= FAR);
}
