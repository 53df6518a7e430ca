// Scalar functions without calls or branches, which compilers vectorise.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

// Functions that Python calls; in a program of its own (standalone/) they are internal.
#if !defined(ENTRY)
#define ENTRY extern "C"
#endif

namespace {

// a * b + c, fused where the CPU does it: elsewhere the library's exact function takes a hundred times as long.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

template <class T> inline T larger(T a, T b) { return a > b || a != a ? a : b; }
template <class T> inline T smaller(T a, T b) { return a < b || a != a ? a : b; }
template <class T> inline T absolute(T a) { return a < 0 ? -a : a; }
template <class T> inline T power(T a, T b) { return b == 2 ? a * a : (T)std::pow(a, b); }
inline double modulo(double a, double b) { return a - std::floor(a / b) * b; }
inline float modulo(float a, float b) { return a - std::floor(a / b) * b; }
inline int64_t modulo(int64_t a, int64_t b) { return (a % b + b) % b; }

// Horner's rule: the polynomial in x with these coefficients, that of the highest power first.
template <class... Rest> inline float polynomial(float x, float p, Rest... rest) {
    ((p = multiply_add(p, x, rest)), ...);
    return p;
}

// exp(x) = 2^n · e^r with n = round(x / log 2); r = x - n log 2 in two steps (Cody-Waite), since log 2 is no float.
// e^r is a polynomial of degree 7 (Cephes expf), 2^n is written into the exponent bits.
inline float exponential(float x) {
    const float within = x < -87.3f ? -87.3f : x > 88.7228f ? 88.7228f : x;
    const float n = __builtin_rintf(within * 1.44269504f);
    float r = multiply_add(n, -0.693145752f, within);
    r = multiply_add(n, -1.42860677e-6f, r);
    float p = polynomial(
        r, 1.98756912e-4f, 1.39819994e-3f, 8.33345205e-3f, 4.16657962e-2f, 1.66666657e-1f, 0.5f);
    p = multiply_add(p, r * r, r) + 1.0f;
    const int32_t half = (int32_t)n >> 1;  // two factors, since 2^128 overflows
    union {
        int32_t bits;
        float number;
    } low = {(int32_t)((uint32_t)(half + 127) << 23)}, high = {(int32_t)((uint32_t)((int32_t)n - half + 127) << 23)};
    const float result = p * low.number * high.number;
    return x < -87.3f ? 0.0f : x > 88.7228f ? INFINITY : x != x ? x : result;
}
inline double exponential(double x) { return std::exp(x); }

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline float hyperbolic_tangent(float x) {
    const float size = absolute(x), square = x * x;
    const float p = polynomial(  // near zero `far` cancels digits
        square, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
    const float near = multiply_add(p * square, x, x);
    const float far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
    return size < 0.625f ? near : x < 0 ? -far : far;
}
inline double hyperbolic_tangent(double x) { return std::tanh(x); }

// Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7; near zero the Taylor series.
inline float error_function(float x) {
    const float size = absolute(x), square = x * x, t = 1.0f / (1.0f + 0.3275911f * size);
    const float p = polynomial(t, 1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f);
    const float far = 1.0f - p * t * exponential(-square);
    const float q = polynomial(
        square, -8.54832700e-4f, 5.22397762e-3f, -2.68661706e-2f, 1.12837917e-1f, -3.76126389e-1f);
    const float near = multiply_add(q * square, x, 1.12837917f * x);
    return size < 0.5f ? near : x < 0 ? -far : far;
}
inline double error_function(double x) { return std::erf(x); }

// Flushes subnormal floats (below 1e-38) to zero in its scope: arithmetic on a decaying state would slow down 100-fold.
struct FlushDenormals {
#if defined(__SSE2__)
    const unsigned before = __builtin_ia32_stmxcsr();
    FlushDenormals() { __builtin_ia32_ldmxcsr(before | 0x8040); }  // FTZ and DAZ
    ~FlushDenormals() { __builtin_ia32_ldmxcsr(before); }
#else
    FlushDenormals() {}
    ~FlushDenormals() {}
#endif
};

}  // namespace
