// What the processor can do at most: multiply-adds in registers, and reading memory, in several threads.
#include <chrono>
#include <thread>
#include <vector>
#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace {

typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int SUMS = 12;  // enough to hide the latency of one

volatile float sink;

void multiply_floats(int64_t times) {
    Vector sums[SUMS], factor = Vector{} + 0.999f, more = Vector{} + 1e-6f;
    for (Vector& sum : sums) sum = Vector{} + 1.0f;
    for (int64_t n = 0; n < times; ++n)
#pragma GCC unroll 12
        for (int s = 0; s < SUMS; ++s) sums[s] = sums[s] * factor + more;
    for (Vector& sum : sums) sink = sum[0];
}

#if defined(__AVX512VNNI__)
inline __m512i add_dots(__m512i sums, __m512i bytes) {
    asm("vpdpbusd %1, %1, %0" : "+v"(sums) : "v"(bytes));
    return sums;
}

void multiply_bytes(int64_t times) {
    __m512i sums[SUMS], bytes = _mm512_set1_epi32(0x01010101);
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    for (int64_t n = 0; n < times; ++n)
#pragma GCC unroll 12
        for (int s = 0; s < SUMS; ++s) sums[s] = add_dots(sums[s], bytes);
    for (__m512i& sum : sums) sink = (float)_mm512_reduce_add_epi32(sum);
}
constexpr double BYTE_OPERATIONS = 2.0 * 64;
#else
void multiply_bytes(int64_t times) { multiply_floats(times); }
constexpr double BYTE_OPERATIONS = 2.0 * 16;
#endif

// Eight streams, as many as the kernels of one row read.
void read(const char* memory, int64_t size) {
    Vector sums[8] = {};
    const int64_t part = size / 8 / 64 * 64;
    for (int64_t n = 0; n < part; n += 64)
        for (int s = 0; s < 8; ++s) {
            __builtin_prefetch(memory + s * part + n + 1024);
            sums[s] += *(const Vector*)(memory + s * part + n);
        }
    for (Vector& sum : sums) sink = sum[0];
}

// Work per second of all threads together, each with its number.
template <class Work> double rate(int64_t threads, double amount, const Work& work) {
    const auto began = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (int64_t n = 1; n < threads; ++n) others.emplace_back([&work, n] { work(n); });
    work(0);
    for (std::thread& other : others) other.join();
    return amount / std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

extern "C" double float_operations(int64_t threads, int64_t times) {
    return rate(threads, 2.0 * 16 * SUMS * (double)(times * threads), [&](int64_t) { multiply_floats(times); });
}

extern "C" double byte_operations(int64_t threads, int64_t times) {
    return rate(threads, BYTE_OPERATIONS * SUMS * (double)(times * threads), [&](int64_t) { multiply_bytes(times); });
}

// Each thread reads its part of the memory.
extern "C" double bytes_read(int64_t threads, const char* memory, int64_t size, int64_t times) {
    const int64_t part = size / threads;
    return rate(threads, (double)(part * threads * times), [&](int64_t n) {
        for (int64_t t = 0; t < times; ++t) read(memory + n * part, part);
    });
}
