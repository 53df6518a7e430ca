// Sampling: logits to tokens by the rules of elman.generation.sampling. Needs products.h.
#include <functional>

typedef void (*Step)(const void* const* weights, Row* const* rows, int64_t count, int64_t outputs);

extern "C" {
struct Rules {
    int64_t vocab, top_k, window, end, start, stops, excluded;
    double temperature, top_p, penalty, min_p, presence, frequency;
    int64_t biases;
    const int64_t* biased;  // tokens
    const double* bias;
};

// What the penalties know of a row's text.
struct History {
    int64_t* recent;  // the last `window` tokens, prompt included; -1 is none
    int32_t* counts;  // of each token that was generated; null without presence and frequency penalty
};
}

namespace {

constexpr int64_t BLOCK = 256;
constexpr int64_t WORK = 3;  // numbers of memory for each token of the vocabulary (also in runner.py)
constexpr double ROUNDING = 1e-7;  // tolerance with which the nucleus reaches top_p

// The `count` largest values, in descending order, to `heap`, which has room for all values.
void largest(const float* values, int64_t size, int64_t count, float* heap) {
    if (count > 2 * BLOCK) {
        std::copy(values, values + size, heap);
        std::partial_sort(heap, heap + count, heap + size, std::greater<float>());
        return;
    }
    std::copy(values, values + count, heap);  // a min-heap: its first is the smallest
    std::make_heap(heap, heap + count, std::greater<float>());
    for (int64_t from = count; from < size; from += BLOCK) {
        const int64_t to = std::min(from + BLOCK, size);
        float most = -INFINITY;
        for (int64_t n = from; n < to; ++n) most = larger(values[n], most);
        if (!(most > heap[0])) continue;
        for (int64_t n = from; n < to; ++n)
            if (values[n] > heap[0]) {
                std::pop_heap(heap, heap + count, std::greater<float>());
                heap[count - 1] = values[n];
                std::push_heap(heap, heap + count, std::greater<float>());
            }
    }
    std::sort(heap, heap + count, std::greater<float>());
}

// Zeroes all but the `count` largest values; `last` is the smallest that stays, of ties the first.
void keep(float* values, int64_t size, float last, int64_t count) {
    for (int64_t n = 0; n < size; ++n) count -= values[n] > last;
    for (int64_t n = 0; n < size; ++n) {
        if (values[n] < last || (values[n] == last && count <= 0)) values[n] = 0;
        else count -= values[n] == last;
    }
}

double total(const float* values, int64_t size) {
    double sum = 0;
    for (int64_t from = 0; from < size; from += BLOCK) {
        float part = 0;
        for (int64_t n = from; n < std::min(from + BLOCK, size); ++n) part += values[n];
        sum += part;
    }
    return sum;
}

// `first`: memory for as many.
void keep_nucleus(float* values, int64_t size, double mass, float* first) {
    const double all = total(values, size);
    for (int64_t count = std::min(BLOCK, size);; count = std::min(16 * count, size)) {
        largest(values, size, count, first);
        double reached = 0;
        for (int64_t n = 0; n < count; ++n)
            if ((reached += first[n] / all) >= mass - ROUNDING) return keep(values, size, first[n], n + 1);
        if (count == size) return;
    }
}

// Inverse-CDF sampling: the token at which the cumulative sum of the weights passes `quantile` (0 to 1) of the total.
int64_t draw(const float* weights, int64_t size, double quantile) {
    quantile *= total(weights, size);
    double sum = 0;
    int64_t from = 0, last = 0;
    for (; from + BLOCK < size; from += BLOCK) {
        const double part = total(weights + from, BLOCK);
        if (sum + part > quantile) break;
        sum += part;
    }
    for (int64_t n = from; n < size; ++n) {
        if (weights[n] > 0) last = n;
        if ((sum += weights[n]) > quantile && weights[n] > 0) return n;
    }
    return last;
}

// The maximum. NaNs are skipped; the sum of exponentials detects them.
float top_of(const float* values, int64_t size) {
    typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
    Lanes most[4] = {};
    for (int64_t part = 0; part < 4; ++part) most[part] -= INFINITY;  // not by reference: it would claim alignment
    int64_t n = 0;
    for (; n + 4 * LANES <= size; n += 4 * LANES)
        for (int64_t part = 0; part < 4; ++part) {
            const Lanes here = *(const Lanes*)(values + n + part * LANES);
            most[part] = here > most[part] ? here : most[part];
        }
    float top = -INFINITY;
    for (; n < size; ++n) top = values[n] > top ? values[n] : top;
    for (int64_t part = 0; part < 4; ++part)
        for (int64_t lane = 0; lane < LANES; ++lane) top = most[part][lane] > top ? most[part][lane] : top;
    return top;
}

// exp((x - top) · factor); the arrays do not overlap, else compilers would not vectorise it.
void exponentials(const float* __restrict x, int64_t size, float top, double factor, float* __restrict y) {
    if (factor == 1)
        for (int64_t n = 0; n < size; ++n) y[n] = exponential(x[n] - top);
    else
        for (int64_t n = 0; n < size; ++n) y[n] = exponential((float)((x[n] - top) * factor));
}

// Softmax without division: exp(logits - max) goes to `work`; returns its sum, and the maximum in `most`.
double weigh(const float* logits, int64_t vocab, float* work, float& most) {
    const float top = most = top_of(logits, vocab);
    exponentials(logits, vocab, top, 1, work);
    return total(work, vocab);
}

// The logits after exclusion, penalties and bias; `target` is memory for them, which is not used if nothing changes.
const float* shape(const float* logits, const Rules& rules, const History& history, float* target) {
    const bool counted = history.counts && (rules.presence != 0 || rules.frequency != 0);
    if (rules.penalty == 1 && rules.excluded < 0 && !counted && !rules.biases) return logits;
    std::copy(logits, logits + rules.vocab, target);
    for (int64_t n = 0; rules.penalty != 1 && n < rules.window; ++n) {
        const int64_t token = history.recent[n];
        if (token >= 0 && token < rules.vocab)
            target[token] = (float)(logits[token] > 0 ? logits[token] / rules.penalty : logits[token] * rules.penalty);
    }
    for (int64_t n = 0; counted && n < rules.vocab; ++n)
        target[n] -= (float)(history.counts[n] * rules.frequency + (history.counts[n] > 0) * rules.presence);
    for (int64_t n = 0; n < rules.biases; ++n) target[rules.biased[n]] += (float)rules.bias[n];
    if (rules.excluded >= 0) target[rules.excluded] = -INFINITY;
    return target;
}

// Zeroes the weights of tokens with less than `share` of the probability of the most probable one.
void keep_min_p(float* weights, const float* scores, int64_t vocab, float top, double inverse, double share) {
    const double least = std::log(share) - ROUNDING;
    for (int64_t n = 0; n < vocab; ++n)
        if (((double)scores[n] - top) * inverse < least) weights[n] = 0;
}

// Whether only a token is excluded that is not the most probable one: then all other weights stay.
bool only_excludes(const float* logits, const Rules& rules, const History& history, float most) {
    const bool counted = history.counts && (rules.presence != 0 || rules.frequency != 0);
    return rules.excluded >= 0 && rules.penalty == 1 && !counted && !rules.biases && rules.temperature == 1 &&
           rules.min_p == 0 && logits[rules.excluded] < most;
}

// Samples the next token, or -1 if the logits are not finite. `work` has room for the vocabulary WORK times.
int64_t choose(
    const float* logits, const Rules& rules, const History& history, double uniform, float* work, double* log_prob) {
    const int64_t vocab = rules.vocab;
    float most;
    const double all = weigh(logits, vocab, work, most);
    if (!std::isfinite(all) || !(all > 0)) return -1;
    const bool excludes = only_excludes(logits, rules, history, most);
    if (excludes) work[rules.excluded] = 0;
    const float* scores = excludes ? logits : shape(logits, rules, history, work + vocab);
    const bool changed = scores != logits;
    const float top = changed ? top_of(scores, vocab) : most;
    int64_t token;
    if (rules.temperature == 0) {
        token = std::find(scores, scores + vocab, top) - scores;
    } else {
        const double inverse = 1 / rules.temperature;
        if (changed || rules.temperature != 1) exponentials(scores, vocab, top, inverse, work);
        float* const first = work + 2 * vocab;
        if (rules.top_k > 0 && rules.top_k < vocab) {
            largest(work, vocab, rules.top_k, first);
            keep(work, vocab, first[rules.top_k - 1], rules.top_k);
        }
        if (rules.top_p < 1) keep_nucleus(work, vocab, rules.top_p, first);
        if (rules.min_p > 0) keep_min_p(work, scores, vocab, top, inverse, rules.min_p);
        token = draw(work, vocab, uniform);
    }
    *log_prob = (double)logits[token] - ((double)most + std::log(all));
    return token;
}

void remember(const History& history, const Rules& rules, int64_t token) {
    if (history.recent) {
        std::copy(history.recent + 1, history.recent + rules.window, history.recent);
        history.recent[rules.window - 1] = token;
    }
    if (history.counts) ++history.counts[token];
}

}  // namespace

// Samples up to `count` tokens, with a step after each (not after the last if `final`). Returns how many were sampled:
// fewer at the end of the text, or if logits are not finite (log_probs NaN).
ENTRY int64_t run(
    Step step, const void* const* weights, Row* row, const Rules* rules, const History* history, const double* uniforms, float* work,
    int64_t count, int64_t final, int64_t* tokens, double* log_probs) {
    const float* logits = (const float*)row->output;
    for (int64_t n = 0; n < count; ++n) {
        const int64_t token = choose(logits, *rules, *history, uniforms[n], work, log_probs + n);
        if (token < 0) {
            log_probs[n] = NAN;
            return n;
        }
        tokens[n] = token;
        if (rules->stops && token == rules->end) return n + 1;
        if (final && n + 1 == count) return count;
        remember(*history, *rules, token);
        *(int64_t*)row->given = token == rules->end ? rules->start : token;
        step(weights, &row, 1, 1);
    }
    return count;
}

// Teacher forcing: steps through `inputs`; nats[n] = -log p(targets[n] | inputs up to n).
ENTRY void follow(
    Step step, const void* const* weights, Row* row, int64_t vocab, const int64_t* inputs, const int64_t* targets, float* work,
    int64_t count, double* nats) {
    const float* logits = (const float*)row->output;
    for (int64_t n = 0; n < count; ++n) {
        *(int64_t*)row->given = inputs[n];
        step(weights, &row, 1, 1);
        float most;
        const double all = weigh(logits, vocab, work, most);
        nats[n] = (double)most + std::log(all) - (double)logits[targets[n]];
    }
}
