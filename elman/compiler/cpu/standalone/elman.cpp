// The library of one model: see elman.h. model.h and unicode.h were written for it.
#include "elman.h"

#include <atomic>
#include <cstdio>
#include <iterator>
#include <new>

#define STANDALONE
#define ENTRY [[maybe_unused]] static
#include "kernels/scalar_math.h"
#include "kernels/row.h"
#include "alone.h"
#include "kernels/products.h"
#include "kernels/sampling.h"
#include "kernels/kernels.h"
#include "state.h"
#include "model.h"
#include "blob.h"
#include "utf8.h"
#include "unicode.h"
#include "text.h"
#include "encode.h"
#include "random.h"
#include "writer.h"

namespace {

constexpr int32_t MOST_WINDOW = 4096;
constexpr char STATE_MAGIC[8] = {'e', 'l', 'm', 'a', 'n', ' ', 's', '1'};
constexpr uint64_t STATE_HEADER = 24;  // the magic, the checksum of the model, whether a text has begun

// What contexts of a model share.
struct Model {
    std::atomic<int64_t> users{1};
    void* memory = nullptr;
    const uint8_t* data = nullptr;
    Header header;
    Text text;
    const void* weights[PLACES + 1];
    const char* labels[OUTPUTS + 1];
    int64_t label_count = 0;
};

// The addresses of the parts of the state.
constexpr int64_t ADDRESSES = padded((PARTS_OF_STATE + 1) * (int64_t)sizeof(void*));

}  // namespace

struct elman {
    Model* model;
    void* memory;  // as allocated
    Row* row;
    float* work;
    int64_t* recent;
    int32_t* counts;
    char* buffer;  // of a Writer
    Workspace* workspace;
};

namespace {

// Divides memory, or with null measures how much is needed.
struct Divider {
    char* base;
    int64_t used = 0;

    template <class T> T* take(int64_t bytes) {
        char* const place = base ? base + used : nullptr;
        used += padded(bytes);
        return (T*)place;
    }
};

int64_t divide(elman& context, const Text& text, char* base) {
    Divider memory = {base};
    context.row = memory.take<Row>(sizeof(Row));
    void** const state = memory.take<void*>(ADDRESSES);
    void** const next = memory.take<void*>(ADDRESSES);
    void* const given = memory.take<void>(8);
    void* const output = memory.take<void>(OUTPUTS * 4 + 4);
    for (int64_t n = 0; n < PARTS_OF_STATE; ++n) {
        void* const first = memory.take<void>(STATE[n].slides() ? STATE[n].memory() : STATE[n].bytes);
        void* const second = STATE[n].slides() ? first : memory.take<void>(STATE[n].bytes);
        if (base) state[n] = first, next[n] = second;
    }
    char* const scratch = memory.take<char>(SCRATCH);
    if (base) *context.row = Row{scratch, given, state, next, output, nullptr, nullptr, nullptr};
    context.work = memory.take<float>(WORK * OUTPUTS * 4);
    context.recent = memory.take<int64_t>(MOST_WINDOW * 8);
    context.counts = memory.take<int32_t>(OUTPUTS * 4);
    context.buffer = memory.take<char>(Writer::room_for(text));
    context.workspace = memory.take<Workspace>(sizeof(Workspace));
    return memory.used;
}

int new_context(Model* model, elman** result) {
    elman measured;
    const int64_t bytes = divide(measured, model->text, nullptr);
    elman* const context = (elman*)std::malloc(sizeof(elman));
    void* const memory = std::calloc(1, (size_t)bytes + CACHE_LINE);
    if (!context || !memory) {
        std::free(context);
        std::free(memory);
        return ELMAN_NO_MEMORY;
    }
    const uintptr_t address = (uintptr_t)memory;
    divide(*context, model->text, (char*)memory + (CACHE_LINE - address % CACHE_LINE) % CACHE_LINE);
    context->model = model, context->memory = memory;
    *result = context;
    return ELMAN_OK;
}

void release(Model* model) {
    if (--model->users) return;
    std::free(model->memory);
    model->~Model();
    std::free(model);
}

float* logits_of(const elman* context) { return (float*)context->row->output; }

// The logits and the state, from bytes without a header; copies windows to the beginning of their strips.
void restore(elman* context, const uint8_t* from) {
    std::memcpy(context->row->output, from, OUTPUTS * 4);
    from += OUTPUTS * 4;
    for (int64_t n = 0; n < PARTS_OF_STATE; ++n) {
        const StatePart& part = STATE[n];
        if (!part.slides()) {
            std::memcpy(context->row->state[n], from, (size_t)part.bytes);
            from += part.bytes;
            continue;
        }
        char* const strip = (char*)context->row->state[n];
        std::memset(strip, 0, HEADER_OF_STRIP);
        for (int64_t m = 0; m < part.outer; ++m, from += part.length * part.inner)
            std::memcpy(strip + HEADER_OF_STRIP + m * part.total * part.inner, from, (size_t)(part.length * part.inner));
    }
}

void save(const elman* context, uint8_t* to) {
    std::memcpy(to, context->row->output, OUTPUTS * 4);
    to += OUTPUTS * 4;
    for (int64_t n = 0; n < PARTS_OF_STATE; ++n) {
        const StatePart& part = STATE[n];
        const char* const from = (const char*)context->row->state[n];
        if (!part.slides()) {
            std::memcpy(to, from, (size_t)part.bytes);
            to += part.bytes;
            continue;
        }
        int64_t first;
        std::memcpy(&first, from, sizeof(first));
        for (int64_t m = 0; m < part.outer; ++m, to += part.length * part.inner)
            std::memcpy(
                to, from + HEADER_OF_STRIP + (m * part.total + first) * part.inner, (size_t)(part.length * part.inner));
    }
}

void advance(elman* context, int64_t token, bool wanted) {
    std::memcpy(context->row->given, &token, sizeof(token));
    step(context->model->weights, &context->row, 1, wanted);
}

// Steps through a text that was encoded, and computes the logits after its last token only.
struct Reader {
    elman* context;
    int64_t last = -1;

    int push(int64_t token) {
        if (last >= 0) advance(context, last, false);
        last = token;
        return ELMAN_OK;
    }
    void finish() {
        if (last >= 0) advance(context, last, true);
        last = -1;
    }
};

void begin(elman* context) { restore(context, context->model->data + context->model->header.state.start); }

template <class Sink> int encode_text(elman* context, const char* text, size_t size, Sink&& push) {
    const uint8_t* const at = (const uint8_t*)text;
    return encode(context->model->text, *context->workspace, at, at + size, push);
}

// The labels are strings one after another, each with a zero at its end.
bool find_labels(Model& model) {
    const Range range = model.header.labels;
    const char *at = (const char*)model.data + range.start, *const end = at + range.size;
    while (at < end && model.label_count < OUTPUTS) {
        const char* const stop = (const char*)std::memchr(at, 0, (size_t)(end - at));
        if (!stop) return false;
        model.labels[model.label_count++] = at;
        at = stop + 1;
    }
    return at == end && (!model.label_count || model.label_count == OUTPUTS);
}

int open_model(Model& model, uint64_t size) {
    if (const int code = check_blob(model.data, size, model.header)) return code;
    const Header& header = model.header;
    const uint8_t* const text = model.data + header.text.start;
    if (!model.text.read({text, text + header.text.size}) || !find_labels(model)) return ELMAN_DAMAGED;
    if (IS_LANGUAGE_MODEL && model.text.vocab != OUTPUTS) return ELMAN_DAMAGED;
    for (int64_t n = 0; n < PLACES; ++n) model.weights[n] = model.data + header.weights.start + WEIGHT_PLACES[n];
    return ELMAN_OK;
}

// Takes over `memory`.
int make(void* memory, const uint8_t* data, uint64_t size, elman** result) {
    void* const place = std::malloc(sizeof(Model));
    if (!place) {
        std::free(memory);
        return ELMAN_NO_MEMORY;
    }
    Model* const model = new (place) Model;
    model->memory = memory, model->data = data;
    int code = open_model(*model, size);
    if (!code) code = new_context(model, result);
    if (code) release(model);
    else elman_reset(*result);
    return code;
}

bool valid(const elman_settings& asked) {
    const bool rates = asked.temperature >= 0 && asked.top_p > 0 && asked.top_p <= 1 && asked.min_p >= 0 && asked.min_p <= 1;
    const bool sizes = asked.top_k >= 0 && asked.max_tokens >= 0 && asked.stops >= 0 && (asked.stop || !asked.stops);
    if (!rates || !sizes || !(asked.repetition_penalty > 0)) return false;
    if (asked.repetition_window < 1 || asked.repetition_window > MOST_WINDOW) return false;
    if (!std::isfinite(asked.temperature + asked.repetition_penalty)) return false;
    if (!std::isfinite(asked.presence_penalty + asked.frequency_penalty)) return false;
    for (int32_t n = 0; n < asked.stops; ++n)
        if (!asked.stop[n] || !*asked.stop[n] || std::strlen(asked.stop[n]) > LONGEST_STOP) return false;
    return true;
}

Rules rules_of(const Text& text, const elman_settings& asked) {
    Rules rules = {};
    rules.vocab = OUTPUTS, rules.top_k = asked.top_k, rules.window = asked.repetition_window;
    rules.end = text.end, rules.start = text.start, rules.stops = asked.stop_at_end;
    rules.excluded = asked.unknown || text.unknown == text.end ? -1 : text.unknown;
    rules.temperature = asked.temperature, rules.top_p = asked.top_p, rules.min_p = asked.min_p;
    rules.penalty = asked.repetition_penalty;
    rules.presence = asked.presence_penalty, rules.frequency = asked.frequency_penalty;
    return rules;
}

// The prompt, or the opening of texts without one; the Writer learns what stands before its text.
int read_prompt(elman* context, const char* prompt, size_t size, const Rules& rules, const History& history, Writer& writer) {
    const Text& text = context->model->text;
    Reader reader = {context};
    bool empty = true;
    const auto take = [&](int64_t token) {
        empty = false;
        std::copy(history.recent + 1, history.recent + rules.window, history.recent);
        history.recent[rules.window - 1] = token;
        writer.skip(token);
        return reader.push(token);
    };
    begin(context);
    reader.push(text.start);
    if (const int code = encode_text(context, prompt, size, take)) return code;
    for (int64_t n = 0; empty && n < text.openings; ++n) {
        take(text.opening[n]);
        empty = true;
    }
    reader.finish();
    return ELMAN_OK;
}

}  // namespace

const char* elman_message(int code) {
    static const char* const messages[] = {
        "no error",
        "the file cannot be read",
        "the file is not a model of elman",
        "the file is another model than the one that this program was compiled for: use the files of one export",
        "the file is damaged: its contents do not have the checksum or the sizes that it states",
        "there is not enough memory",
        "an argument is out of its range",
        "the result does not fit into the room that was given",
        "a word without white space, or the marks on one letter, are too many to be divided into tokens",
        "the logits are not finite: the weights are damaged",
        "the model has another task: language models generate, readers of texts classify",
    };
    return code >= 0 && code < (int)std::size(messages) ? messages[code] : "there is no error of this number";
}

int elman_load(const char* path, elman** model) {
    if (!path || !model) return ELMAN_WRONG_ARGUMENT;
    void* memory = nullptr;
    uint8_t* data = nullptr;
    uint64_t size = 0;
    if (const int code = read_file(path, memory, data, size)) {
        std::free(memory);
        return code;
    }
    return make(memory, data, size, model);
}

int elman_load_memory(const void* data, size_t size, elman** model) {
    if (!data || !model) return ELMAN_WRONG_ARGUMENT;
    if ((uintptr_t)data % 64 == 0) return make(nullptr, (const uint8_t*)data, size, model);
    void* const memory = size > SIZE_MAX - 64 ? nullptr : std::malloc(size + 64);
    if (!memory) return ELMAN_NO_MEMORY;
    uint8_t* const place = (uint8_t*)memory + (64 - (uintptr_t)memory % 64) % 64;
    std::memcpy(place, data, size);
    return make(memory, place, size, model);
}

int elman_clone(const elman* model, elman** copy) {
    if (!model || !copy) return ELMAN_WRONG_ARGUMENT;
    if (const int code = new_context(model->model, copy)) return code;
    ++model->model->users;
    return elman_state_clone(model, *copy);
}

void elman_free(elman* model) {
    if (!model) return;
    release(model->model);
    std::free(model->memory);
    std::free(model);
}

int elman_reset(elman* model) {
    if (!model) return ELMAN_WRONG_ARGUMENT;
    begin(model);
    if (IS_LANGUAGE_MODEL) advance(model, model->model->text.start, true);
    return ELMAN_OK;
}

int elman_step(elman* model, int32_t token) {
    if (!model || !model->model->text.has(token)) return ELMAN_WRONG_ARGUMENT;
    advance(model, token, true);
    return ELMAN_OK;
}

const float* elman_logits(const elman* model) { return logits_of(model); }

int32_t elman_outputs(const elman*) { return OUTPUTS; }

int elman_kind(const elman*) { return OUTPUT_KIND; }

int32_t elman_vocabulary(const elman* model) { return (int32_t)model->model->text.vocab; }

int32_t elman_end(const elman* model) { return (int32_t)model->model->text.end; }

int elman_encode(elman* model, const char* text, size_t size, int32_t* tokens, size_t room, size_t* count) {
    if (!model || (!text && size) || (!tokens && room) || !count) return ELMAN_WRONG_ARGUMENT;
    size_t found = 0;
    const int code = encode_text(model, text, size, [&](int64_t token) {
        if (found < room) tokens[found] = (int32_t)token;
        ++found;
        return ELMAN_OK;
    });
    *count = found;
    return code ? code : found > room ? ELMAN_NO_ROOM : ELMAN_OK;
}

int elman_decode(elman* model, const int32_t* tokens, size_t count, char* text, size_t room, size_t* bytes) {
    if (!model || (!tokens && count) || (!text && room) || !bytes) return ELMAN_WRONG_ARGUMENT;
    const elman_settings settings = elman_defaults();
    Writer writer(model->model->text, settings, model->buffer);
    *bytes = 0;
    const auto write = [&](int64_t size) {
        if (*bytes + (size_t)size <= room) std::memcpy(text + *bytes, model->buffer, (size_t)size);
        *bytes += (size_t)size;
    };
    for (size_t n = 0; n < count; ++n) {
        if (!model->model->text.has(tokens[n])) return ELMAN_WRONG_ARGUMENT;
        write(writer.push(tokens[n]));
    }
    write(writer.close());
    return *bytes > room ? ELMAN_NO_ROOM : ELMAN_OK;
}

elman_settings elman_defaults(void) {
    elman_settings settings = {};
    settings.max_tokens = 200, settings.temperature = settings.top_p = settings.repetition_penalty = 1;
    settings.repetition_window = 64, settings.stop_at_end = 1;
    return settings;
}

int elman_generate(
    elman* model, const char* prompt, size_t size, const elman_settings* settings, elman_sink sink, void* user) {
    if (!IS_LANGUAGE_MODEL) return ELMAN_OTHER_TASK;
    if (!model || !settings || !sink || !valid(*settings)) return ELMAN_WRONG_ARGUMENT;
    const Text& text = model->model->text;
    const Rules rules = rules_of(text, *settings);
    const History history = {model->recent, rules.presence != 0 || rules.frequency != 0 ? model->counts : nullptr};
    std::fill(history.recent, history.recent + rules.window, -1);
    std::fill(model->counts, model->counts + OUTPUTS, 0);
    Writer writer(text, *settings, model->buffer);
    if (prompt)
        if (const int code = read_prompt(model, prompt, size, rules, history, writer)) return code;
    Random random(settings->seed, settings->stream);
    for (int32_t n = 0; n < settings->max_tokens; ++n) {
        double log_prob;
        const double uniform = rules.temperature > 0 ? random.next() : 0;
        const int64_t token = choose(logits_of(model), rules, history, uniform, model->work, &log_prob);
        if (token < 0) return ELMAN_INVALID_LOGITS;
        const bool ends = token == text.end, last = ends && rules.stops;
        const int64_t shown = last ? 0 : ends ? writer.end_line() : writer.push(token);
        if (sink(user, (int32_t)token, log_prob, model->buffer, (size_t)shown) || writer.stopped) return ELMAN_OK;
        if (last) break;
        remember(history, rules, token);
        advance(model, ends ? text.start : token, true);
    }
    const int64_t rest = writer.close();
    if (rest) sink(user, -1, 0, model->buffer, (size_t)rest);
    return ELMAN_OK;
}

int elman_classify(elman* model, const char* text, size_t size, float* results) {
    if (IS_LANGUAGE_MODEL) return ELMAN_OTHER_TASK;
    if (!model || (!text && size) || !results) return ELMAN_WRONG_ARGUMENT;
    Reader reader = {model};
    int64_t left = MOST_TOKENS;
    begin(model);
    const auto push = [&](int64_t token) { return left-- > 0 ? reader.push(token) : ELMAN_OK; };
    if (const int code = encode_text(model, text, size, push)) return code;
    reader.finish();
    const float* const logits = logits_of(model);
    double sum = 0;
    const float most = *std::max_element(logits, logits + OUTPUTS);
    for (int64_t n = 0; n < OUTPUTS; ++n) {
        if (!std::isfinite(logits[n])) return ELMAN_INVALID_LOGITS;
        const double chance = OUTPUT_KIND == ELMAN_ONE_LABEL ? std::exp((double)logits[n] - most) : 1 / (1 + std::exp(-(double)logits[n]));
        results[n] = OUTPUT_KIND == ELMAN_NUMBER ? (float)(logits[n] * OUTPUT_SCALE + OUTPUT_MEAN) : (float)chance;
        sum += chance;
    }
    for (int64_t n = 0; OUTPUT_KIND == ELMAN_ONE_LABEL && n < OUTPUTS; ++n) results[n] = (float)(results[n] / sum);
    return ELMAN_OK;
}

const char* elman_label(const elman* model, int32_t number) {
    return number >= 0 && number < model->model->label_count ? model->model->labels[number] : nullptr;
}

size_t elman_state_size(const elman*) { return STATE_HEADER + STATE_BYTES; }

int elman_state_save(const elman* model, void* to, size_t room) {
    if (!model || !to) return ELMAN_WRONG_ARGUMENT;
    if (room < STATE_HEADER + STATE_BYTES) return ELMAN_NO_ROOM;
    uint8_t* const place = (uint8_t*)to;
    save(model, place + STATE_HEADER);
    const uint64_t sums[2] = {model->model->header.checksum, checksum_of(place + STATE_HEADER, STATE_BYTES)};
    std::memcpy(place, STATE_MAGIC, 8);
    std::memcpy(place + 8, sums, 16);
    return ELMAN_OK;
}

int elman_state_load(elman* model, const void* from, size_t size) {
    if (!model || !from) return ELMAN_WRONG_ARGUMENT;
    const uint8_t* const place = (const uint8_t*)from;
    if (size != STATE_HEADER + STATE_BYTES || std::memcmp(place, STATE_MAGIC, 8)) return ELMAN_DAMAGED;
    uint64_t sums[2];
    std::memcpy(sums, place + 8, 16);
    if (sums[0] != model->model->header.checksum) return ELMAN_OTHER_MODEL;
    if (sums[1] != checksum_of(place + STATE_HEADER, STATE_BYTES)) return ELMAN_DAMAGED;
    restore(model, place + STATE_HEADER);
    return ELMAN_OK;
}

int elman_state_clone(const elman* from, elman* to) {
    if (!from || !to || from->model != to->model) return ELMAN_WRONG_ARGUMENT;
    std::memcpy(to->row->output, from->row->output, OUTPUTS * 4);
    for (int64_t n = 0; n < PARTS_OF_STATE; ++n)
        std::memcpy(to->row->state[n], from->row->state[n], (size_t)(STATE[n].slides() ? STATE[n].memory() : STATE[n].bytes));
    return ELMAN_OK;
}
