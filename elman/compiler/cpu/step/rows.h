// Steps of many rows, divided among threads. Needs sampling.h.
#include <atomic>
#include <functional>
#include <thread>
#include <unistd.h>
#include <vector>

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

// A token of one row: drawn by its rules, or `given` and scored. Which the caller reads, and what it gets.
struct Choice {
    const float* logits;
    const Rules* rules;
    History history;
    double uniform;
    int64_t given;  // -1: draw one
    int64_t token;  // -1 if the logits are not finite
    double log_prob;
    int64_t best;  // 1 if no token is more probable
};

namespace {

// The `count` most probable tokens in descending order, ties by the lowest id, and their log-probabilities.
void most_probable(
    const float* logits, int64_t vocab, double normaliser, int64_t count, float* work, int64_t* tokens, double* log_probs) {
    count = std::min(count, vocab);
    if (!count) return;
    largest(logits, vocab, count, work);
    const float last = work[count - 1];
    int64_t found = 0, equal = count;
    for (int64_t n = 0; n < vocab; ++n) equal -= logits[n] > last;
    for (int64_t n = 0; n < vocab && found < count; ++n)
        if (logits[n] > last || (logits[n] == last && equal-- > 0)) tokens[found++] = n;
    std::stable_sort(tokens, tokens + count, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    for (int64_t n = 0; n < count; ++n) log_probs[n] = (double)logits[tokens[n]] - normaliser;
}

void decide(Choice& choice, float* work, int64_t top, int64_t* tokens, double* log_probs) {
    const int64_t vocab = choice.rules->vocab;
    float most = top_of(choice.logits, vocab);
    if (choice.given < 0) {
        choice.token = choose(choice.logits, *choice.rules, choice.history, choice.uniform, work, &choice.log_prob);
        if (choice.token >= 0) remember(choice.history, *choice.rules, choice.token);
    } else {
        const double all = weigh(choice.logits, vocab, work, most);
        choice.token = std::isfinite(all) && all > 0 ? choice.given : -1;
        choice.log_prob = (double)choice.logits[choice.given] - ((double)most + std::log(all));
    }
    choice.best = choice.token >= 0 && !(choice.logits[choice.token] < most);
    if (choice.token < 0) {
        choice.log_prob = NAN;
        return;
    }
    const double logit = choice.logits[choice.token];
    most_probable(choice.logits, vocab, logit - choice.log_prob, top, work, tokens, log_probs);
    for (int64_t n = 0; n < top; ++n)  // equal logits have equal log-probabilities, to the last bit
        if (choice.logits[tokens[n]] == logit) log_probs[n] = choice.log_prob;
}

}  // namespace

// Decides on a token of each row; `tokens` and `log_probs` get the `top` most probable ones of each.
extern "C" void choose_rows(Pool* pool, Choice* choices, int64_t count, int64_t top, int64_t* tokens, double* log_probs) {
    pool->run([&](int64_t thread) {
        std::vector<float> work;
        for (int64_t n = count * thread / pool->size; n < count * (thread + 1) / pool->size; ++n) {
            work.resize(WORK * choices[n].rules->vocab);
            decide(choices[n], work.data(), top, tokens + n * top, log_probs + n * top);
        }
    });
}
