// Steps of many rows, divided among threads. Needs threads.h and sampling.h.
#include <chrono>

namespace {

// The rows of a step, those that want logits first.
struct Stepping {
    std::vector<Row*> rows;
    int64_t outputs = 0;

    template <class Wanted> void fill(int64_t count, const Wanted& wanted) {
        rows.clear(), outputs = 0;
        for (const bool kind : {true, false})
            for (int64_t n = 0; n < count; ++n)
                if (Row* row = wanted(n, kind)) rows.push_back(row), outputs += kind;
    }

    void run(Step step, const void* const* weights) { step(weights, rows.data(), rows.size(), outputs); }
};

}  // namespace

// Each row moves on by its token. Rows whose `wanted` is 0 do without logits.
extern "C" void step_rows(
    Pool* pool, Step step, const void* const* weights, Row* const* rows, const int64_t* tokens, const uint8_t* wanted,
    int64_t count) {
    Stepping stepping;
    for (int64_t n = 0; n < count; ++n) *(int64_t*)rows[n]->given = tokens[n];
    stepping.fill(count, [&](int64_t n, bool kind) { return (wanted[n] != 0) == kind ? rows[n] : nullptr; });
    const Helped helped(pool);
    stepping.run(step, weights);
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

void decide(Choice& choice, int64_t top, int64_t* tokens, double* log_probs) {
    static thread_local std::vector<float> memory;
    const int64_t vocab = choice.rules->vocab;
    memory.resize(std::max<size_t>(memory.size(), WORK * vocab));
    float* const work = memory.data();
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
    const Helped helped(pool);
    divided(true, count, 1, [&](int64_t from, int64_t to) {
        for (int64_t n = from; n < to; ++n) decide(choices[n], top, tokens + n * top, log_probs + n * top);
    });
}

// What a row does: it reads `inputs`, then draws up to `most` tokens, and reads each of them but the last. With `given`
// it scores the tokens in there, one after each input.
struct Turn {
    Row* row;
    Choice choice;
    const int64_t* inputs;
    int64_t read, unread;  // how many of the inputs; after them the last token that was drawn
    int64_t drawn, most;
    const double* uniforms;  // one for each token that is drawn
    const int64_t* given;  // or null
    int64_t* tokens;  // that were drawn or scored; -1 at the end of them if logits are not finite
    double* log_probs;
    int64_t top, *top_tokens;  // the most probable ones at each place
    double* top_log_probs;
    int64_t own, last;  // whether the inputs have ended, and the token that was drawn, as it is read

    bool wants_logits() const { return given || (unread == 1 && most); }

    void take_input() {
        *(int64_t*)row->given = own ? last : inputs[read++];
        --unread;
    }

    void draw() {
        const Rules& rules = *choice.rules;
        choice.uniform = given ? 0 : uniforms[drawn], choice.given = given ? given[drawn] : -1;
        decide(choice, top, top_tokens + drawn * top, top_log_probs + drawn * top);
        tokens[drawn] = choice.token, log_probs[drawn] = choice.log_prob;
        ++drawn;
        if (choice.token < 0) unread = 0;
        if (given || choice.token < 0 || drawn == most || (rules.stops && choice.token == rules.end)) return;
        last = choice.token == rules.end ? rules.start : choice.token;
        own = unread = 1;
    }
};

namespace {

typedef std::chrono::steady_clock Clock;

// Which rows are stepped next.
struct Course {
    std::vector<Turn*> turns;
    const int64_t steps, beside;
    const Clock::time_point soon, until;
    int64_t stepped = 0, ahead = 0;  // steps of all rows, and those of prompts since the last of them
    bool late = false, ended = false;
    Stepping stepping = {};
    std::vector<Turn*> drawing = {};  // in the order of the rows that want logits

    bool any(int64_t unread) const {
        return std::any_of(turns.begin(), turns.end(), [&](const Turn* turn) { return turn->unread >= unread; });
    }

    bool one_is_over() const {
        return std::any_of(turns.begin(), turns.end(), [](const Turn* turn) { return !turn->unread; });
    }

    void plan() {
        const auto now = Clock::now();
        late = late || now >= until || (now >= soon && one_is_over());
        ended = stepped >= (late ? 1 : steps) || !any(1);
        if (ended) return;
        const bool prompts = ahead < beside && !late && any(2);
        ahead = prompts ? ahead + 1 : 0;
        stepped += !prompts;
        drawing.clear();
        stepping.fill(turns.size(), [&](int64_t n, bool kind) -> Row* {
            Turn& turn = *turns[n];
            if (turn.unread < 1 + prompts || kind != turn.wants_logits()) return nullptr;
            if (kind) drawing.push_back(&turn);
            return turn.row;
        });
        for (Turn* turn : turns)
            if (turn->unread >= 1 + prompts) turn->take_input();
    }
};

}  // namespace

// Takes turns until all have ended, or for so many steps of all rows, or until time is up (a fifth of it where some have
// ended), but one step at least. Between two of these, rows with more than one token to read take up to `beside` steps
// by themselves.
extern "C" void advance_rows(
    Pool* pool, Step step, const void* const* weights, Turn* turns, const int64_t* numbers, int64_t count, int64_t steps,
    int64_t beside, double seconds) {
    const auto time = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const auto now = Clock::now();
    Course course = {{}, steps, beside, now + time / 5, now + time};
    for (int64_t n = 0; n < count; ++n) course.turns.push_back(turns + numbers[n]);
    const Helped helped(pool);
    for (course.plan(); !course.ended; course.plan()) {
        course.stepping.run(step, weights);
        divided(true, course.drawing.size(), 1, [&](int64_t from, int64_t to) {
            for (int64_t n = from; n < to; ++n) course.drawing[n]->draw();
        });
    }
}
