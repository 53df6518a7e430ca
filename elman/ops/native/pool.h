// Goes after kernels.h. Several threads on one product: each takes its share of the panels, the caller among them.
#include <atomic>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace {

constexpr int64_t PATIENCE = 10000;  // looks before a thread goes to sleep: products follow each other closely

struct Pool {
    int64_t threads = 1;
    pid_t owner = 0;  // a forked process has none of its parent's threads
    std::mutex busy;
    Part part = nullptr;
    const void* task = nullptr;
    int64_t count = 0;
    std::atomic<int64_t> round{0}, left{0};

    static void wait(std::atomic<int64_t>& number, int64_t old) {
        for (int64_t n = 0; n < PATIENCE; ++n)
            if (number.load(std::memory_order_acquire) != old) return;
        number.wait(old);
    }

    void work(int64_t number, int64_t seen) {
        for (;; ++seen) {
            wait(round, seen);
            part(task, count * number / threads, count * (number + 1) / threads);
            if (left.fetch_sub(1) == 1) left.notify_one();
        }
    }

    void start(int64_t wanted) {
        threads = wanted;
        owner = getpid();
        for (int64_t number = 1; number < threads; ++number)
            std::thread([this, number, seen = round.load()] { work(number, seen); }).detach();
    }

    void run(Part given, const void* what, int64_t all) {
        part = given, task = what, count = all;
        left.store(threads - 1);
        round.fetch_add(1);
        round.notify_all();
        part(task, 0, count / threads);
        for (int64_t now; (now = left.load(std::memory_order_acquire));) wait(left, now);
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
