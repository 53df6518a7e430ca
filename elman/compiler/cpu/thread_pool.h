// Needs step/kernels.h. A work-sharing pool for one product: each thread, the caller included, takes chunk after chunk of
// the panels. So a thread that the scheduler has preempted delays the others by one chunk at most.
#include <atomic>
#include <mutex>
#include <thread>
#include <unistd.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t SPINS = 2000;  // before a thread sleeps: products follow each other closely
constexpr int64_t CHUNKS = 4;  // per thread
constexpr uint64_t LEFT = 0xffffffff;  // low bits of the ticket: chunks left; the high bits count rounds

inline void cpu_relax() {
#if defined(__SSE2__)
    _mm_pause();
#endif
}

struct Pool {
    int64_t threads = 1;
    pid_t owner = 0;  // threads do not survive a fork
    std::mutex busy;
    // The task of a round. It changes only while no chunks are left, so a thread that gets a chunk has read all of it.
    std::atomic<Part> part{nullptr};
    std::atomic<const void*> task{nullptr};
    std::atomic<int64_t> count{0}, chunks{0};
    alignas(64) std::atomic<uint64_t> ticket{0};
    alignas(64) std::atomic<int64_t> unfinished{0};

    template <class T> static void wait(std::atomic<T>& number, T old) {
        for (int64_t n = 0; n < SPINS; ++n, cpu_relax())
            if (number.load(std::memory_order_acquire) != old) return;
        number.wait(old);
    }

    // Takes chunks while there are any; returns the ticket that says there are none.
    uint64_t work() {
        for (uint64_t seen = ticket.load();;) {
            if (!(seen & LEFT)) return seen;
            const Part own = part.load();
            const void* what = task.load();
            const int64_t all = count.load(), parts = chunks.load(), number = parts - (int64_t)(seen & LEFT);
            if (!ticket.compare_exchange_weak(seen, seen - 1)) continue;
            own(what, all * number / parts, all * (number + 1) / parts);
            if (unfinished.fetch_sub(1) == 1) unfinished.notify_one();
            seen = ticket.load();
        }
    }

    void start(int64_t wanted) {
        threads = wanted;
        owner = getpid();
        for (int64_t number = 1; number < threads; ++number)
            std::thread([this] {
                for (;;) wait(ticket, work());
            }).detach();
    }

    void run(Part function, const void* what, int64_t all) {
        const int64_t parts = std::min(all, CHUNKS * threads);
        part.store(function), task.store(what), count.store(all), chunks.store(parts);
        unfinished.store(parts);
        ticket.store(((ticket.load() | LEFT) + 1) | (uint64_t)parts);
        ticket.notify_all();
        work();
        for (int64_t now; (now = unfinished.load(std::memory_order_acquire));) wait(unfinished, now);
    }
};

Pool* pool = new Pool;  // never destroyed: its threads may outlive static objects

}  // namespace

extern "C" void share_work(Part part, const void* task, int64_t count) {
    const std::unique_lock<std::mutex> mine(pool->busy, std::try_to_lock);
    if (!mine || pool->threads < 2 || pool->owner != getpid()) return part(task, 0, count);
    pool->run(part, task, count);
}

extern "C" void use_threads(int64_t count) {
    if (count == pool->threads && pool->owner == getpid()) return;
    pool = new Pool;  // threads of the old one stay asleep
    pool->start(count);
}
