// Goes after kernels.h. Several threads on one product: each takes piece after piece of the panels, the caller too. So
// nobody waits for a thread that the system has put aside, unless it was in the middle of a piece.
#include <atomic>
#include <mutex>
#include <thread>
#include <unistd.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t PATIENCE = 2000;  // looks before a thread goes to sleep: products follow each other closely
constexpr int64_t PIECES = 4;  // for each thread
constexpr uint64_t LEFT = 0xffffffff;  // the bits of a ticket that say how many pieces are left; the others count rounds

inline void rest() {
#if defined(__SSE2__)
    _mm_pause();
#endif
}

struct Pool {
    int64_t threads = 1;
    pid_t owner = 0;  // a forked process has none of its parent's threads
    std::mutex busy;
    // The work of a round. It changes only while no pieces are left, so whoever gets a piece has read it whole.
    std::atomic<Part> part{nullptr};
    std::atomic<const void*> task{nullptr};
    std::atomic<int64_t> count{0}, pieces{0};
    alignas(64) std::atomic<uint64_t> ticket{0};
    alignas(64) std::atomic<int64_t> unfinished{0};

    template <class T> static void wait(std::atomic<T>& number, T old) {
        for (int64_t n = 0; n < PATIENCE; ++n, rest())
            if (number.load(std::memory_order_acquire) != old) return;
        number.wait(old);
    }

    // Takes pieces while there are some; gives the ticket that says there are none.
    uint64_t work() {
        for (uint64_t seen = ticket.load();;) {
            if (!(seen & LEFT)) return seen;
            const Part own = part.load();
            const void* what = task.load();
            const int64_t all = count.load(), parts = pieces.load(), number = parts - (int64_t)(seen & LEFT);
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

    void run(Part given, const void* what, int64_t all) {
        const int64_t parts = std::min(all, PIECES * threads);
        part.store(given), task.store(what), count.store(all), pieces.store(parts);
        unfinished.store(parts);
        ticket.store(((ticket.load() | LEFT) + 1) | (uint64_t)parts);
        ticket.notify_all();
        work();
        for (int64_t now; (now = unfinished.load(std::memory_order_acquire));) wait(unfinished, now);
    }
};

Pool* pool = new Pool;  // never taken down: its threads may outlive everything else

}  // namespace

extern "C" void share_work(Part part, const void* task, int64_t count) {
    const std::unique_lock<std::mutex> mine(pool->busy, std::try_to_lock);
    if (!mine || pool->threads < 2 || pool->owner != getpid()) return part(task, 0, count);
    pool->run(part, task, count);
}

extern "C" void use_threads(int64_t count) {
    if (count == pool->threads && pool->owner == getpid()) return;
    pool = new Pool;  // threads of the last one sleep on
    pool->start(count);
}
