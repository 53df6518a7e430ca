/* ./example PROMPT N SEED goes on with a prompt; of a model that classifies, ./example TEXT says the labels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elman.h"

static int show(void* user, int32_t token, double log_prob, const char* text, size_t size) {
    (void)user, (void)token, (void)log_prob;
    fwrite(text, 1, size, stdout);
    return 0;
}

static int classify(elman* model, const char* text) {
    float* results = malloc(sizeof(float) * (size_t)elman_outputs(model));
    const int code = results ? elman_classify(model, text, strlen(text), results) : ELMAN_NO_MEMORY;
    for (int32_t n = 0; !code && n < elman_outputs(model); ++n)
        printf("%s\t%.6f\n", elman_label(model, n) ? elman_label(model, n) : "number", results[n]);
    free(results);
    return code;
}

int main(int count, char** words) {
    elman* model = NULL;
    elman_settings settings = elman_defaults();
    const char* text = count > 1 ? words[1] : "";
    if (count > 2) settings.max_tokens = atoi(words[2]);
    if (count > 3) settings.seed = strtoull(words[3], NULL, 10);
    int code = elman_load("model.bin", &model);
    if (!code && elman_kind(model) != ELMAN_TOKENS) code = classify(model, text);
    else if (!code) code = elman_generate(model, text, strlen(text), &settings, show, NULL);
    if (code) fprintf(stderr, "%s\n", elman_message(code));
    elman_free(model);
    return code != 0;
}
