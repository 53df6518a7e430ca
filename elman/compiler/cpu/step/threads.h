// Threads that help the one that steps rows. Needs row.h.
//
// A loop is cut into parts, and whoever is free takes the next one. A thread that other processes keep from running has
// taken none, so that nobody waits for it.
#include <algorithm>
#include <atomic>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int SPINS = 2000;  // pauses before a thread that waits lets the system run something else

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Until `ready`, first awake, then asleep until `word` is no longer `value`.
template <class Word, class Value, class Ready> void wait_for(const Word& word, Value value, const Ready& ready) {
    for (int n = 0; n < SPINS; ++n, pause())
        if (ready()) return;
    if (!ready()) word.wait(value);
}

// How numbers are rounded: whoever takes a part of a loop does it as the thread that began the loop.
inline unsigned rounding() {
#if defined(__SSE2__)
    return __builtin_ia32_stmxcsr();
#else
    return 0;
#endif
}

inline void set_rounding(unsigned mode) {
#if defined(__SSE2__)
    __builtin_ia32_ldmxcsr(mode);
#endif
}

// A loop in progress, on the stack of the thread that began it.
struct Loop {
    void (*work)(const void* context, int64_t from, int64_t to);
    const void* context;
    int64_t count, step;
    unsigned mode;
};

class Pool {
  public:
    explicit Pool(int64_t threads) : size(threads) {
        try {
            for (int64_t n = 1; n < size; ++n) helpers.emplace_back([this] { serve(); });
        } catch (...) {
            close();
            throw;
        }
    }

    void close() {
        if (!owns()) return;
        closing = true;
        begin();
        next += LOOP;
        next.notify_all();
        for (std::thread& helper : helpers) helper.join();
        helpers.clear();
    }

    bool owns() const { return owner == getpid(); }  // a fork copies none of the threads
    bool helps() const { return size > 1 && owns(); }

    // Helpers are awake from here …
    void begin() {
        awake = true;
        awake.notify_all();
    }

    // … to here.
    void end() { awake = false; }

    // Calls work(from, to) for parts of 0 to `count`, `step` numbers each, in any thread.
    template <class Work> void loop(int64_t count, int64_t step, const Work& work) {
        step = std::max(step, (count + MASK - 1) / MASK);
        const auto call = [](const void* context, int64_t from, int64_t to) { (*(const Work*)context)(from, to); };
        const Loop whole = {call, &work, count, step, rounding()};
        const int64_t parts = (count + step - 1) / step;
        current.store(&whole, std::memory_order_relaxed);
        done.store(0, std::memory_order_relaxed);
        next.store((next.load(std::memory_order_relaxed) & ~(LOOP - 1)) + LOOP + (parts << BITS));
        if (sleeping.load()) next.notify_all();
        while (take_part()) {}
        for (int32_t now; (now = done.load(std::memory_order_acquire)) < parts;)
            wait_for(done, now, [&] { return done.load(std::memory_order_acquire) >= parts; });
    }

  private:
    static constexpr int BITS = 20;
    static constexpr int64_t MASK = (1 << BITS) - 1, LOOP = 1LL << (2 * BITS);

    // Takes a part of the current loop. `next` has the number of the loop, of its parts and of the next part: as long as
    // these are the same, the loop has not ended, and what was read of it is of this one.
    bool take_part() {
        for (int64_t now = next.load(std::memory_order_acquire);;) {
            const int64_t part = now & MASK, parts = now >> BITS & MASK;
            if (part >= parts) return false;
            const Loop* const loop = current.load(std::memory_order_relaxed);
            if (!next.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) continue;
            if (loop->mode != rounding()) set_rounding(loop->mode);
            loop->work(loop->context, part * loop->step, std::min(loop->count, (part + 1) * loop->step));
            if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == parts) done.notify_all();
            return true;
        }
    }

    void serve() {
        while (!closing) {
            awake.wait(false);
            while (awake && !closing) {
                const int64_t now = next;
                if (take_part()) continue;
                ++sleeping;
                wait_for(next, now, [&] { return next != now || !awake; });
                --sleeping;
            }
        }
    }

    const int64_t size;
    const pid_t owner = getpid();
    std::vector<std::thread> helpers;
    std::atomic<bool> awake = false, closing = false;
    std::atomic<const Loop*> current = nullptr;
    alignas(64) std::atomic<int64_t> next = 0;
    alignas(64) std::atomic<int32_t> done = 0;
    std::atomic<int32_t> sleeping = 0;
};

// The helpers of the calling thread, while it steps rows.
thread_local Pool* helpers = nullptr;

struct Helped {
    explicit Helped(Pool* pool) {
        if (pool->helps()) helpers = pool, pool->begin();
    }
    ~Helped() {
        if (helpers) helpers->end();
        helpers = nullptr;
    }
};

// Calls work(from, to) for parts of 0 to `count`, with helpers if there are any and it is worth it.
template <class Work> void divided(bool worth, int64_t count, int64_t step, const Work& work) {
    Pool* const pool = helpers;
    if (!pool || !worth || count <= step) {
        if (count) work((int64_t)0, count);
        return;
    }
    helpers = nullptr;  // a loop within a part is no loop of the pool
    pool->loop(count, step, work);
    helpers = pool;
}

}  // namespace

// Null if the system gives no more threads.
extern "C" Pool* open_pool(int64_t threads) {
    try {
        return new Pool(threads);
    } catch (...) {
        return nullptr;
    }
}

extern "C" void close_pool(Pool* pool) {
    const bool own = pool->owns();
    pool->close();
    if (own) delete pool;  // in a fork its threads would be destroyed, which ends the process
}

extern "C" void each_row(Part part, const void* const* weights, Row* const* rows, int64_t count) {
    divided(true, count, std::max<int64_t>(count / 16, 2), [&](int64_t from, int64_t to) {
        for (int64_t n = from; n < to; ++n) part(weights, *rows[n]);
    });
}
