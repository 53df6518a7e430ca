// Y (rows, columns) = X (rows, inner) @ W (inner, columns) for few rows and a packed W. Needs scalar_math.h and T.
//
//   panel: W[0, c .. c+P)  W[1, c .. c+P)  ...  W[inner-1, c .. c+P)     P = PANEL columns, up to three SIMD vectors
//   tile:  R rows x V vectors of Y in registers; each k adds X[r, k] · W[k, vector] to them
#include <algorithm>

namespace {

#if defined(__AVX512F__)
constexpr int64_t BYTES = 64, ROWS = 8;
#elif defined(__AVX__)
constexpr int64_t BYTES = 32, ROWS = 4;
#elif defined(__aarch64__)
constexpr int64_t BYTES = 16, ROWS = 8;
#else
constexpr int64_t BYTES = 16, ROWS = 4;
#endif
constexpr int64_t VECTORS = 3, WIDTH = BYTES / sizeof(T), PANEL = VECTORS * WIDTH;
constexpr int64_t DEPTH = 128;  // rows of a panel per block: they stay in L1 while all rows of X pass
typedef T Vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

// The register tile (microkernel). x is row-major with row stride `pitch`, or if TRANSPOSED column-major.
template <int R, int V, bool TRANSPOSED>
void tile(const T* x, int64_t pitch, const T* w, int64_t inner, T* y, int64_t leading, bool add) {
    Vector sums[R][V] = {};
    if (add)
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) sums[r][v] = *(const Vector*)(y + r * leading + v * WIDTH);
    for (int64_t k = 0; k < inner; ++k, w += V * WIDTH) {
        Vector weights[V];
        for (int v = 0; v < V; ++v) weights[v] = *(const Vector*)(w + v * WIDTH);
        for (int r = 0; r < R; ++r) {
            const T one = TRANSPOSED ? x[k * pitch + r] : x[r * pitch + k];
            for (int v = 0; v < V; ++v) sums[r][v] += weights[v] * one;
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) *(Vector*)(y + r * leading + v * WIDTH) = sums[r][v];
}

template <int R, int V, bool TRANSPOSED>
void last_rows(
    int64_t rows, const T* x, int64_t pitch, const T* w, int64_t inner, T* y, int64_t leading, bool add) {
    if constexpr (R > 0) {
        if (rows == R) tile<R, V, TRANSPOSED>(x, pitch, w, inner, y, leading, add);
        else last_rows<R - 1, V, TRANSPOSED>(rows, x, pitch, w, inner, y, leading, add);
    }
}

template <int V, bool TRANSPOSED>
void panel(
    const T* const* x, int64_t count, int64_t inner, int64_t pitch, int64_t rows, const T* w, T* y, int64_t leading,
    bool accumulate) {
    const int64_t row_stride = TRANSPOSED ? 1 : pitch, column_stride = TRANSPOSED ? pitch : 1;
    for (int64_t n = 0; n < count; ++n)
        for (int64_t k = 0; k < inner; k += DEPTH) {
            const int64_t depth = std::min(DEPTH, inner - k);
            const bool add = accumulate || n || k;
            const T* from = x[n] + k * column_stride;
            int64_t r = 0;
            for (; r + ROWS <= rows; r += ROWS)
                tile<ROWS, V, TRANSPOSED>(from + r * row_stride, pitch, w, depth, y + r * leading, leading, add);
            last_rows<ROWS - 1, V, TRANSPOSED>(
                rows - r, from + r * row_stride, pitch, w, depth, y + r * leading, leading, add);
            w += depth * V * WIDTH;
        }
}

// Columns of the panel that begins at `column`, padded to whole vectors.
int64_t columns_of(int64_t column, int64_t columns) {
    return std::min(PANEL, (columns - column + WIDTH - 1) / WIDTH * WIDTH);
}

template <bool TRANSPOSED>
void panels(
    const T* packed, const T* const* x, int64_t count, int64_t inner, int64_t pitch, int64_t rows, T* y,
    int64_t leading, int64_t columns, bool add) {
    for (int64_t column = 0; column < columns; column += PANEL, packed += count * inner * PANEL) {
        const int64_t width = columns_of(column, columns);
        if (width == PANEL) panel<3, TRANSPOSED>(x, count, inner, pitch, rows, packed, y + column, leading, add);
        else if (width == 2 * WIDTH) panel<2, TRANSPOSED>(x, count, inner, pitch, rows, packed, y + column, leading, add);
        else panel<1, TRANSPOSED>(x, count, inner, pitch, rows, packed, y + column, leading, add);
    }
}

}  // namespace

extern "C" {

// y = the sum over all x of x @ its part of the matrix. Row strides: `pitch` of x; `leading` of y, which has room for
// whole vectors behind each row.
void gemm(
    const T* packed, const T* const* x, int64_t count, int64_t inner, int64_t pitch, int64_t rows, T* y,
    int64_t leading, int64_t columns) {
    panels<false>(packed, x, count, inner, pitch, rows, y, leading, columns, false);
}

// Packs one block w(size, inner) into panels: its columns begin at `column`, its rows at `start` of `depth`.
void pack(
    const T* w, int64_t by_column, int64_t column_stride, int64_t size, int64_t inner, int64_t column, int64_t columns,
    int64_t start, int64_t depth, T* packed) {
    constexpr int64_t BLOCK = 16;
    for (int64_t j = 0; j < size;) {
        const int64_t first = (column + j) / PANEL * PANEL, width = columns_of(first, columns);
        const int64_t lane = column + j - first, left = std::min(size - j, width - lane);
        const int64_t many = by_column == 1 ? left : std::min(left, BLOCK);
        T* to = packed + first * depth + start * width + lane;
        if (by_column == 1)
            for (int64_t k = 0; k < inner; ++k)
                for (int64_t n = 0; n < many; ++n) to[k * width + n] = w[k * column_stride + j + n];
        else
            for (int64_t block = 0; block < inner; block += BLOCK)
                for (int64_t n = 0; n < many; ++n)
                    for (int64_t k = block; k < std::min(inner, block + BLOCK); ++k)
                        to[k * width + n] = w[(j + n) * by_column + k * column_stride];
        j += many;
    }
}

// A list of GEMMs, twelve integers each (see runtime.run_gemms): y = x @ w, or without x the sum of all rows of w.
// jobs[11]: 0 overwrites y, 1 adds to it, else the address of a bias row.
void small_gemms(const int64_t* jobs, int64_t count) {
    const FlushDenormals flush;
    for (; count; --count, jobs += 12) {
        const T *x = (const T*)jobs[0], *w = (const T*)jobs[4], *bias = jobs[11] > 1 ? (const T*)jobs[11] : nullptr;
        const int64_t row_stride = jobs[1], column_stride = jobs[2], rows = jobs[3];
        const int64_t w_inner = jobs[5], w_column = jobs[6], columns = jobs[7], inner = jobs[8];
        T* const y = (T*)jobs[9];
        const int64_t leading = jobs[10];
        if (bias)
            for (int64_t r = 0; r < rows; ++r) std::copy(bias, bias + columns, y + r * leading);
        if (!x) {
            if (!jobs[11]) std::fill(y, y + columns, T(0));
            for (int64_t k = 0; k < inner; ++k)
                for (int64_t c = 0; c < columns; ++c) y[c] += w[k * w_inner + c];
            continue;
        }
        const int64_t padded = (columns + 15) / 16 * 16;
        const bool separate = columns % WIDTH, add = jobs[11] && !separate;  // else whole vectors would be stored behind a row
        T* const memory = (T*)std::aligned_alloc(64, padded * (inner + (separate ? rows : 0)) * sizeof(T));
        T* const to = separate ? memory + padded * inner : y;
        const int64_t stride = separate ? padded : leading;
        pack(w, w_column, w_inner, columns, inner, 0, columns, 0, inner, memory);
        if (column_stride == 1) panels<false>(memory, &x, 1, inner, row_stride, rows, to, stride, columns, add);
        else panels<true>(memory, &x, 1, inner, column_stride, rows, to, stride, columns, add);
        if (separate)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t c = 0; c < columns; ++c)
                    y[r * leading + c] = to[r * stride + c] + (jobs[11] ? y[r * leading + c] : T(0));
        std::free(memory);
    }
}
}
