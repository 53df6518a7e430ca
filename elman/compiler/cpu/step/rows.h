// Steps of many rows, divided among threads. Needs sampling.h.
#include <atomic>
#include <functional>
#include <thread>
#include <unistd.h>

namespace {

// Threads that wait for work. A fork copies none of them: there the calling thread does all the work.
class Pool {
  public:
    explicit Pool(int64_t threads) : size(threads) {
        try {
            for (int64_t n = 1; n < size; ++n) workers.emplace_back([this, n] { serve(n); });
        } catch (...) {
            close();
            throw;
        }
    }

    void close() {
        if (!owns()) return;
        closing = true;
        begin();
        for (std::thread& worker : workers) worker.join();
        workers.clear();
    }

    // Calls work(0) … work(size - 1), each in a thread.
    void run(const std::function<void(int64_t)>& work) {
        if (!owns() || size == 1) {
            for (int64_t n = 0; n < size; ++n) work(n);
            return;
        }
        job = &work;
        busy = size - 1;
        begin();
        work(0);
        for (int64_t left; (left = busy.load()); ) busy.wait(left);
    }

    bool owns() const { return owner == getpid(); }

    const int64_t size;

  private:
    void begin() {
        ++round;
        round.notify_all();
    }

    void serve(int64_t number) {
        for (int64_t seen = 0;;) {
            round.wait(seen);
            ++seen;
            if (closing) return;
            (*job)(number);
            if (--busy == 0) busy.notify_one();
        }
    }

    const pid_t owner = getpid();
    std::vector<std::thread> workers;
    const std::function<void(int64_t)>* job = nullptr;
    std::atomic<int64_t> round = 0, busy = 0;
    std::atomic<bool> closing = false;
};

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

// Each row moves on by its token. Rows whose `wanted` is 0 do without logits; each thread has its share of both kinds.
extern "C" void step_rows(
    Pool* pool, Step step, const void* const* weights, Row* const* rows, const int64_t* tokens, const uint8_t* wanted,
    int64_t count) {
    std::vector<Row*> ordered;
    int64_t outputs = 0;
    for (const bool kind : {true, false})
        for (int64_t n = 0; n < count; ++n)
            if ((wanted[n] != 0) == kind) {
                *(int64_t*)rows[n]->given = tokens[n];
                ordered.push_back(rows[n]);
                outputs += kind;
            }
    pool->run([&](int64_t thread) {
        const auto share = [&](int64_t all, int64_t part) { return all * part / pool->size; };
        const int64_t with = share(outputs, thread), with_end = share(outputs, thread + 1);
        const int64_t others = count - outputs, from_end = pool->size - thread;  // whoever has more of one has less of the other
        const int64_t without = share(others, from_end - 1), without_end = share(others, from_end);
        std::vector<Row*> mine(ordered.begin() + with, ordered.begin() + with_end);
        mine.insert(mine.end(), ordered.begin() + outputs + without, ordered.begin() + outputs + without_end);
        if (!mine.empty()) step(weights, mine.data(), mine.size(), with_end - with);
    });
}
