/* A program of one model, its weights included.

   A language model goes on with PROMPT, or without one with each line of standard input. Other models answer each line
   as `elman predict` does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elman.h"

extern const unsigned char elman_data[], elman_data_end[]; /* data.S */

static const char usage[] =
    "[--max-tokens N] [--temperature T] [--top-k K] [--top-p P] [--min-p P] [--seed S] [PROMPT]";

/* A line of standard input without its end, in memory that grows; null at the end. */
static char* read_line(char** line, size_t* room, size_t* size) {
    int letter;
    for (*size = 0; (letter = getchar()) != EOF && letter != '\n'; (*line)[(*size)++] = (char)letter)
        if (*size + 2 > *room) {
            char* const more = realloc(*line, *room = 2 * *room + 256);
            if (!more) return NULL;
            *line = more;
        }
    if (letter == EOF && !*size) return NULL;
    if (!*line && !(*line = malloc(*room = 1))) return NULL;
    if (*size && (*line)[*size - 1] == '\r') --*size;
    (*line)[*size] = 0;
    return *line;
}

static int show(void* user, int32_t token, double log_prob, const char* text, size_t size) {
    (void)user, (void)token, (void)log_prob;
    fwrite(text, 1, size, stdout);
    return fflush(stdout) != 0;
}

static int generate(elman* model, const char* text, size_t size, const elman_settings* settings) {
    const int code = elman_generate(model, text, size, settings, show, NULL);
    if (!code) putchar('\n');
    return code;
}

static int answer(elman* model, const char* text, size_t size, float* results) {
    const int32_t count = elman_outputs(model), kind = elman_kind(model);
    const int code = elman_classify(model, text, size, results), empty = strspn(text, " \t\r\f\v") == size;
    int32_t best = 0, shown = 0;
    if (code) return code;
    for (int32_t n = 1; n < count; ++n)
        if (results[n] > results[best]) best = n;
    for (int32_t n = 0; n < count && !empty; ++n) {
        if (kind == ELMAN_NUMBER) printf(n ? " %.6g" : "%.6g", results[n]);
        else if (kind == ELMAN_ONE_LABEL ? n == best : results[n] > 0.5)
            printf("%s%s", shown++ ? ", " : "", elman_label(model, n));
    }
    putchar('\t');
    fwrite(text, 1, size, stdout);
    putchar('\n');
    return ferror(stdout) ? ELMAN_CANNOT_READ : ELMAN_OK;
}

/* Whether the option is known and its value a number. */
static int set(elman_settings* settings, const char* name, const char* value) {
    char* end;
    const double number = strtod(value, &end);
    if (end == value || *end) return 0;
    if (!strcmp(name, "--max-tokens")) settings->max_tokens = number < 0 || number > 2e9 ? -1 : (int32_t)number;
    else if (!strcmp(name, "--top-k")) settings->top_k = number < 0 || number > 2e9 ? -1 : (int32_t)number;
    else if (!strcmp(name, "--temperature")) settings->temperature = number;
    else if (!strcmp(name, "--top-p")) settings->top_p = number;
    else if (!strcmp(name, "--min-p")) settings->min_p = number;
    else if (!strcmp(name, "--seed")) settings->seed = strtoull(value, &end, 10);
    else return 0;
    return 1;
}

int main(int count, char** words) {
    elman_settings settings = elman_defaults();
    const char* prompt = NULL;
    char* line = NULL;
    size_t room = 0, size;
    elman* model = NULL;
    for (int n = 1; n < count; ++n) {
        const int option = !strncmp(words[n], "--", 2);
        if (option && n + 1 < count && set(&settings, words[n], words[n + 1])) ++n;
        else if (!option && !prompt) prompt = words[n];
        else {
            fprintf(stderr, "%s is no option with a number, nor a first prompt\nusage: %s %s\n", words[n], words[0], usage);
            return 2;
        }
    }
    int code = elman_load_memory(elman_data, (size_t)(elman_data_end - elman_data), &model);
    float* const results = code ? NULL : malloc(sizeof(float) * (size_t)elman_outputs(model));
    if (!code && !results) code = ELMAN_NO_MEMORY;
    const int writes = !code && elman_kind(model) == ELMAN_TOKENS;
    while (!code && (prompt ? !line : read_line(&line, &room, &size) != NULL)) {
        if (prompt) size = strlen(line = (char*)prompt);
        code = writes ? generate(model, line, size, &settings) : answer(model, line, size, results);
    }
    if (code) fprintf(stderr, "%s: %s\n", words[0], elman_message(code));
    free(results);
    if (!prompt) free(line);
    elman_free(model);
    return code || fflush(stdout) ? 1 : 0;
}
