// Kernels of single steps, for one row: products of computed matrices, gathers, top-k. Needs row.h.

#if !defined(STANDALONE)  // else they are those of products.h
static Gemm gemm_fp32, gemm_int8;
static Each each_row;
ENTRY void set_kernels(Gemm fp32, Gemm int8, Each each) { gemm_fp32 = fp32, gemm_int8 = int8, each_row = each; }
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

// The product of one vector, with a matrix of its row's own choice.
inline void gemv(Gemm gemm, const void* packed, const void* x, float* y, int64_t inner, int64_t columns) {
    Row row = {};
    row.x = x, row.y = y;
    Row* const one = &row;
    gemm(packed, &one, 1, inner, columns);
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

// The same of a table in 8 bits: each row of whole numbers is followed by its scale (matmul.py).
inline void gather_rounded(
    const void* table, int64_t rows, int64_t size, const int64_t* indices, int64_t count, float* __restrict y) {
    const int64_t padded = (size + 3) / 4 * 4;
    for (int64_t n = 0; n < count; ++n) {
        const int8_t* row = (const int8_t*)table + clamp_index(indices[n], rows) * (padded + 4);
        float scale;
        std::memcpy(&scale, row + padded, sizeof(scale));
        for (int64_t k = 0; k < size; ++k) y[n * size + k] = scale * row[k];
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
