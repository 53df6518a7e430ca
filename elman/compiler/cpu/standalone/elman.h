/* A model of elman as a C library. Nothing but the C and C++ standard libraries is needed.

   An `elman` is a model and the state of one text. Different ones can be used by different threads at the same time,
   one of them by one thread at a time; `elman_clone` makes another that shares the weights. Memory is allocated by
   `elman_load` and `elman_clone` alone. Text is UTF-8; what is not is read as U+FFFD. */
#ifndef ELMAN_H
#define ELMAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct elman elman;

/* What functions return; `elman_message` says it in words. */
enum {
    ELMAN_OK = 0,
    ELMAN_CANNOT_READ,
    ELMAN_NOT_A_MODEL,
    ELMAN_OTHER_MODEL,
    ELMAN_DAMAGED,
    ELMAN_NO_MEMORY,
    ELMAN_WRONG_ARGUMENT,
    ELMAN_NO_ROOM,
    ELMAN_TOO_LONG,
    ELMAN_INVALID_LOGITS,
    ELMAN_OTHER_TASK
};
const char* elman_message(int code);

/* Reads model.bin, and begins a text. From memory, which must stay as it is until `elman_free` where it begins at a
   multiple of 64 bytes; else it is copied. */
int elman_load(const char* path, elman** model);
int elman_load_memory(const void* data, size_t size, elman** model);
/* Another one with the same weights and its own state, which is that of `model`. */
int elman_clone(const elman* model, elman** copy);
void elman_free(elman* model);

/* One step at a time. A language model gives a logit for each token, a classifier one for each label. */
int elman_reset(elman* model); /* to the beginning of a text */
int elman_step(elman* model, int32_t token);
const float* elman_logits(const elman* model); /* after the last step; the next one overwrites them */
int32_t elman_outputs(const elman* model);
/* What the outputs are: logits of the next token, probabilities of one or of several labels, or a number. */
enum { ELMAN_TOKENS, ELMAN_ONE_LABEL, ELMAN_SEVERAL_LABELS, ELMAN_NUMBER };
int elman_kind(const elman* model);
int32_t elman_vocabulary(const elman* model);
int32_t elman_end(const elman* model); /* the token that ends texts */

/* Text and tokens. `count` and `bytes` are what was written, or with ELMAN_NO_ROOM what is needed. */
int elman_encode(elman* model, const char* text, size_t size, int32_t* tokens, size_t room, size_t* count);
int elman_decode(elman* model, const int32_t* tokens, size_t count, char* text, size_t room, size_t* bytes);

typedef struct elman_settings {
    uint64_t seed;
    uint32_t stream;      /* texts of one seed and different streams are independent */
    int32_t max_tokens;
    double temperature;   /* 0: greedy */
    int32_t top_k;        /* 0: all */
    double top_p, min_p;  /* 1 and 0: all */
    double repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0 and 0: none */
    int32_t repetition_window; /* tokens, at most 4096 */
    int32_t stop_at_end, unknown; /* whether to stop at the end-of-text token, and to draw the unknown one */
    const char* const* stop; /* strings before which the text ends, at most 256 bytes each */
    int32_t stops;
} elman_settings;
elman_settings elman_defaults(void);

/* Called for each token with the text that it completes, which may be empty, and at the end with what is left, and
   token -1. A result other than 0 ends the text. `log_prob`: under the model itself, in nats. */
typedef int (*elman_sink)(void* user, int32_t token, double log_prob, const char* text, size_t size);

/* Goes on with a prompt. Without one (null) it goes on from the state as it is. */
int elman_generate(
    elman* model, const char* prompt, size_t size, const elman_settings* settings, elman_sink sink, void* user);

/* The probability of each label, `elman_outputs` numbers; of a regressor, its number. */
int elman_classify(elman* model, const char* text, size_t size, float* results);
const char* elman_label(const elman* model, int32_t number); /* null if there is none */

/* The state of a text as bytes, logits included. */
size_t elman_state_size(const elman* model);
int elman_state_save(const elman* model, void* to, size_t room);
int elman_state_load(elman* model, const void* from, size_t size);
int elman_state_clone(const elman* from, elman* to); /* between two of the same model */

#ifdef __cplusplus
}
#endif
#endif
