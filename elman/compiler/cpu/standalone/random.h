// Random numbers of NumPy: default_rng(SeedSequence(seed, spawn_key=(stream,))).random(), the generator PCG64
// (O'Neill, 2014: PCG XSL RR 128/64), in 64-bit arithmetic.

namespace {

struct Wide {  // 128 bits
    uint64_t high, low;
};

inline Wide operator+(Wide a, Wide b) {
    const uint64_t low = a.low + b.low;
    return {a.high + b.high + (low < a.low), low};
}

inline Wide product(uint64_t a, uint64_t b) {
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t first = a0 * b0, middle = a1 * b0 + (first >> 32), other = a0 * b1 + (uint32_t)middle;
    return {a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (uint32_t)first};
}

inline Wide operator*(Wide a, Wide b) {
    Wide result = product(a.low, b.low);
    result.high += a.high * b.low + a.low * b.high;
    return result;
}

class Random {
  public:
    Random(uint64_t seed, uint32_t stream) {
        uint32_t pool[4];
        fill(pool, seed, stream);
        uint64_t words[4] = {};
        uint32_t factor = 0x8b51f9dd;
        for (int n = 0; n < 8; ++n) {
            uint32_t word = pool[n % 4] ^ factor;
            factor *= 0x58f38ded;
            word *= factor;
            words[n / 2] |= (uint64_t)(word ^ word >> 16) << (n % 2 * 32);
        }
        increment = {words[2] << 1 | words[3] >> 63, words[3] << 1 | 1};
        state = increment + Wide{words[0], words[1]};
        step();
    }

    double next() {  // from 0 to 1, without 1
        step();
        const uint64_t mixed = state.high ^ state.low, turn = state.high >> 58;
        return (double)((mixed >> turn | mixed << (-turn & 63)) >> 11) * (1.0 / 9007199254740992.0);
    }

  private:
    void step() { state = state * Wide{0x2360ed051fc65da4, 0x4385df649fccf645} + increment; }

    // SeedSequence: the words of the seed, padded to four, then that of the stream, are mixed into a pool of four.
    static void fill(uint32_t* pool, uint64_t seed, uint32_t stream) {
        const uint32_t entropy[5] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0, stream};
        uint32_t factor = 0x43b0d7e5;
        const auto hash = [&](uint32_t word) {
            word ^= factor;
            factor *= 0x931e8875;
            word *= factor;
            return word ^ word >> 16;
        };
        const auto mix = [](uint32_t a, uint32_t b) {
            const uint32_t word = 0xca01f9ddu * a - 0x4973f715u * b;
            return word ^ word >> 16;
        };
        for (int n = 0; n < 4; ++n) pool[n] = hash(entropy[n]);
        for (int from = 0; from < 4; ++from)
            for (int to = 0; to < 4; ++to)
                if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
        for (int to = 0; to < 4; ++to) pool[to] = mix(pool[to], hash(entropy[4]));
    }

    Wide state, increment;
};

}  // namespace
