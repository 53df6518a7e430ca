// Products of a few rows with a matrix that lies in panels; goes after numbers.h and the definition of T.
// A panel is what up to three vectors of columns need: for the first inner place all of them, then for the second.
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
constexpr int64_t DEPTH = 128;  // inner places of a panel that stay in the nearest cache while all rows pass
typedef T Vector __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

// R rows by V vectors of columns, all sums in registers. Inner places of x lie side by side, or else its rows do.
template <int R, int V, bool ACROSS>
void tile(const T* x, int64_t wide, const T* w, int64_t inner, T* y, int64_t leading, bool add) {
    Vector sums[R][V] = {};
    if (add)
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) sums[r][v] = *(const Vector*)(y + r * leading + v * WIDTH);
    for (int64_t k = 0; k < inner; ++k, w += V * WIDTH) {
        Vector weights[V];
        for (int v = 0; v < V; ++v) weights[v] = *(const Vector*)(w + v * WIDTH);
        for (int r = 0; r < R; ++r) {
            const T one = ACROSS ? x[k * wide + r] : x[r * wide + k];
            for (int v = 0; v < V; ++v) sums[r][v] += weights[v] * one;
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) *(Vector*)(y + r * leading + v * WIDTH) = sums[r][v];
}

template <int R, int V, bool ACROSS>
void last_rows(
    int64_t rows, const T* x, int64_t wide, const T* w, int64_t inner, T* y, int64_t leading, bool add) {
    if constexpr (R > 0) {
        if (rows == R) tile<R, V, ACROSS>(x, wide, w, inner, y, leading, add);
        else last_rows<R - 1, V, ACROSS>(rows, x, wide, w, inner, y, leading, add);
    }
}

template <int V, bool ACROSS>
void panel(
    const T* const* x, int64_t count, int64_t inner, int64_t wide, int64_t rows, const T* w, T* y, int64_t leading,
    bool more) {
    const int64_t by_row = ACROSS ? 1 : wide, by_inner = ACROSS ? wide : 1;
    for (int64_t n = 0; n < count; ++n)
        for (int64_t k = 0; k < inner; k += DEPTH) {
            const int64_t depth = std::min(DEPTH, inner - k);
            const bool add = more || n || k;
            const T* from = x[n] + k * by_inner;
            int64_t r = 0;
            for (; r + ROWS <= rows; r += ROWS)
                tile<ROWS, V, ACROSS>(from + r * by_row, wide, w, depth, y + r * leading, leading, add);
            last_rows<ROWS - 1, V, ACROSS>(
                rows - r, from + r * by_row, wide, w, depth, y + r * leading, leading, add);
            w += depth * V * WIDTH;
        }
}

// How many columns the panel that begins at `column` has.
int64_t columns_of(int64_t column, int64_t columns) {
    return std::min(PANEL, (columns - column + WIDTH - 1) / WIDTH * WIDTH);
}

template <bool ACROSS>
void panels(
    const T* packed, const T* const* x, int64_t count, int64_t inner, int64_t wide, int64_t rows, T* y,
    int64_t leading, int64_t columns, bool add) {
    for (int64_t column = 0; column < columns; column += PANEL, packed += count * inner * PANEL) {
        const int64_t width = columns_of(column, columns);
        if (width == PANEL) panel<3, ACROSS>(x, count, inner, wide, rows, packed, y + column, leading, add);
        else if (width == 2 * WIDTH) panel<2, ACROSS>(x, count, inner, wide, rows, packed, y + column, leading, add);
        else panel<1, ACROSS>(x, count, inner, wide, rows, packed, y + column, leading, add);
    }
}

}  // namespace

extern "C" {

// y = the sum over all of x of x @ its part of the matrix. Rows of x lie `wide` apart, those of y `leading`, which
// leaves room for whole vectors.
void multiply(
    const T* packed, const T* const* x, int64_t count, int64_t inner, int64_t wide, int64_t rows, T* y,
    int64_t leading, int64_t columns) {
    panels<false>(packed, x, count, inner, wide, rows, y, leading, columns, false);
}

// One block w(size, inner) of a matrix: its columns begin at `column`, its inner places at `start` of `depth`.
void pack(
    const T* w, int64_t by_column, int64_t by_inner, int64_t size, int64_t inner, int64_t column, int64_t columns,
    int64_t start, int64_t depth, T* packed) {
    constexpr int64_t SOME = 16;
    for (int64_t j = 0; j < size;) {
        const int64_t first = (column + j) / PANEL * PANEL, width = columns_of(first, columns);
        const int64_t lane = column + j - first, left = std::min(size - j, width - lane);
        const int64_t many = by_column == 1 ? left : std::min(left, SOME);
        T* to = packed + first * depth + start * width + lane;
        if (by_column == 1)
            for (int64_t k = 0; k < inner; ++k)
                for (int64_t n = 0; n < many; ++n) to[k * width + n] = w[k * by_inner + j + n];
        else
            for (int64_t block = 0; block < inner; block += SOME)
                for (int64_t n = 0; n < many; ++n)
                    for (int64_t k = block; k < std::min(inner, block + SOME); ++k)
                        to[k * width + n] = w[(j + n) * by_column + k * by_inner];
        j += many;
    }
}

int64_t width() { return WIDTH; }

// One after another: y = x @ w, or where there is no x the sum of all rows of w, added to what y holds before: nothing
// (0), something (1), or in each row what lies at this address.
void products(const int64_t* jobs, int64_t count) {
    const NoTinyNumbers quick;
    for (; count; --count, jobs += 12) {
        const T *x = (const T*)jobs[0], *w = (const T*)jobs[4], *first = jobs[11] > 1 ? (const T*)jobs[11] : nullptr;
        const int64_t by_row = jobs[1], by_inner = jobs[2], rows = jobs[3];
        const int64_t w_inner = jobs[5], w_column = jobs[6], columns = jobs[7], inner = jobs[8];
        T* const y = (T*)jobs[9];
        const int64_t leading = jobs[10];
        if (first)
            for (int64_t r = 0; r < rows; ++r) std::copy(first, first + columns, y + r * leading);
        if (!x) {
            if (!jobs[11]) std::fill(y, y + columns, T(0));
            for (int64_t k = 0; k < inner; ++k)
                for (int64_t c = 0; c < columns; ++c) y[c] += w[k * w_inner + c];
            continue;
        }
        const int64_t whole = (columns + 15) / 16 * 16;
        const bool aside = columns % WIDTH, add = jobs[11] && !aside;  // whole vectors would reach behind a row
        T* const memory = (T*)std::aligned_alloc(64, whole * (inner + (aside ? rows : 0)) * sizeof(T));
        T* const to = aside ? memory + whole * inner : y;
        const int64_t apart = aside ? whole : leading;
        pack(w, w_column, w_inner, columns, inner, 0, columns, 0, inner, memory);
        if (by_inner == 1) panels<false>(memory, &x, 1, inner, by_row, rows, to, apart, columns, add);
        else panels<true>(memory, &x, 1, inner, by_inner, rows, to, apart, columns, add);
        if (aside)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t c = 0; c < columns; ++c)
                    y[r * leading + c] = to[r * apart + c] + (jobs[11] ? y[r * leading + c] : T(0));
        std::free(memory);
    }
}
}
