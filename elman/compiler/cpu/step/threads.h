// Threads that compute the steps of rows together. Needs row.h.
//
// Rows are divided among the threads, and so are the columns of a large matrix: each part of it is read by one thread,
// for all rows. A part goes to whoever is free, since other processes may keep a thread from running.
#include <atomic>
#include <functional>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int SPINS = 4000;  // pauses until a thread that waits for others lets the system run something else
constexpr int64_t SHARED = 1 << 16;  // elements of a matrix that is worth the two barriers around its product
constexpr int64_t CHUNK = 16;  // panels of a matrix that a thread takes at once; half of it where there are many rows
constexpr int64_t MANY = 16;  // rows

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// All threads wait for each other.
class Barrier {
  public:
    explicit Barrier(int64_t size) : size((int32_t)size) {}

    // The last one to arrive calls `between` before the others go on.
    template <class Between> void wait(const Between& between) {
        const int32_t now = phase.load(std::memory_order_acquire);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
            between();
            arrived.store(0, std::memory_order_relaxed);
            phase.store(now + 1, std::memory_order_release);
            phase.notify_all();
            return;
        }
        for (int n = 0; n < SPINS; ++n, pause())
            if (phase.load(std::memory_order_acquire) != now) return;
        phase.wait(now, std::memory_order_acquire);
    }

    void wait() {
        wait([] {});
    }

  private:
    const int32_t size;
    alignas(64) std::atomic<int32_t> arrived = 0;
    alignas(64) std::atomic<int32_t> phase = 0;
};

// The threads that run one program together, each with rows of its own.
struct Team {
    explicit Team(int64_t size) : size(size), barrier(size), parts(size) {}

    struct Part {
        Row* const* rows;
        int64_t count;
    };

    const int64_t size;
    Barrier barrier;
    std::vector<Part> parts;
    alignas(64) std::atomic<int64_t> next = 0;  // chunk of the current matrix
};

thread_local Team* team = nullptr;
thread_local int64_t member = 0;
thread_local std::vector<Row*> everyone;

// The calling thread belongs to a team for as long as this exists.
struct Membership {
    Membership(Team& joined, int64_t number) {
        if (joined.size > 1) team = &joined, member = number;
    }
    ~Membership() { team = nullptr; }
};

// After `prepare(rows, count)`, `product(rows, count, from, to)` computes these panels for these rows.
template <class Prepare, class Product>
void divided(
    Row* const* rows, int64_t count, int64_t elements, int64_t panels, const Prepare& prepare, const Product& product) {
    if (!team || elements < SHARED) {
        prepare(rows, count);
        return product(rows, count, (int64_t)0, panels);
    }
    team->parts[member] = {rows, count};
    team->barrier.wait();
    everyone.clear();
    for (const Team::Part& part : team->parts) everyone.insert(everyone.end(), part.rows, part.rows + part.count);
    const int64_t all = everyone.size(), size = all < MANY ? CHUNK : CHUNK / 2, chunks = (panels + size - 1) / size;
    prepare(everyone.data(), all);
    for (int64_t chunk; all && (chunk = team->next.fetch_add(1, std::memory_order_relaxed)) < chunks;)
        product(everyone.data(), all, chunk * size, std::min(panels, (chunk + 1) * size));
    team->barrier.wait([] { team->next.store(0, std::memory_order_relaxed); });
}

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

    // Calls work(number) in `threads` threads, numbered from 0.
    void run(const std::function<void(int64_t)>& work) {
        if (threads() == 1) return work(0);
        job = &work;
        busy = size - 1;
        begin();
        work(0);
        for (int64_t left; (left = busy.load()); ) busy.wait(left);
    }

    bool owns() const { return owner == getpid(); }
    int64_t threads() const { return owns() ? size : 1; }

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

    const int64_t size;
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
