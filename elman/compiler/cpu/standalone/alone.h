// One row and one thread, in place of step/threads.h. Needs row.h.
#include <atomic>

namespace {

template <class Work> void divided(bool, int64_t count, int64_t, const Work& work) { work(0, count); }

void each_row(Part part, const void* const* weights, Row* const* rows, int64_t count) {
    for (int64_t n = 0; n < count; ++n) part(weights, *rows[n]);
}

}  // namespace
