// Unicode normalization, to NFD or with COMPOSE to NFC, of a stream of code points. Needs unicode.h.
//
// A point is decomposed; marks are sorted by their combining class, up to the next starter (class 0); then a starter and
// the points after it are composed where no mark of the same or a higher class stands between.

namespace {

constexpr uint32_t L = 0x1100, V = 0x1161, T = 0x11a7, S = 0xac00;  // the first letters and syllable of Korean
constexpr uint32_t LS = 19, VS = 21, TS = 28, SS = LS * VS * TS;
constexpr int64_t MOST_MARKS = 1024;  // after one letter

struct Mark {
    uint32_t point;
    uint8_t order;
};

inline uint8_t order_of(uint32_t point) { return class_of(point, ORDER_STARTS, ORDERS); }

#if defined(COMPOSE)
inline uint32_t composed(uint32_t first, uint32_t second) {
    if (first - L < LS && second - V < VS) return S + ((first - L) * VS + (second - V)) * TS;
    if (first - S < SS && (first - S) % TS == 0 && second - T - 1 < TS - 1) return first + (second - T);
    const uint64_t pair = (uint64_t)first << 32 | second;
    const uint64_t* const place = std::lower_bound(std::begin(PAIRS), std::end(PAIRS), pair);
    return place != std::end(PAIRS) && *place == pair ? COMPOSED[place - PAIRS] : 0;
}
#endif

template <class Sink> class Normalizer {
  public:
    explicit Normalizer(Sink& sink) : sink(sink) {}

    int push(uint32_t point) {
        if (point - S < SS) {
            const uint32_t number = point - S;
            add(L + number / (VS * TS));
            add(V + number / TS % VS);
            if (number % TS) add(T + number % TS);
            return code;
        }
        const uint32_t* const place = std::lower_bound(std::begin(COMPOSITES), std::end(COMPOSITES), point);
        if (place == std::end(COMPOSITES) || *place != point) add(point);
        else
            for (int64_t n = PARTS_AT[place - COMPOSITES]; n < PARTS_AT[place - COMPOSITES + 1]; ++n) add(PARTS[n]);
        return code;
    }

    int flush() {
        sort();
        if (composing) put(starter);
        release();
        composing = false;
        return code;
    }

  private:
    void add(uint32_t point) {
        const uint8_t order = order_of(point);
        if (!order) {
            sort();
            compose({point, 0});
        } else if (count < MOST_MARKS) {
            int64_t n = count++;
            for (; n > 0 && marks[n - 1].order > order; --n) marks[n] = marks[n - 1];
            marks[n] = {point, order};
        } else {
            code = ELMAN_TOO_LONG;
        }
    }

    void sort() {
        for (int64_t n = 0; n < count; ++n) compose(marks[n]);
        count = 0;
    }

    void compose(Mark next) {
#if defined(COMPOSE)
        if (!composing) {
            if (next.order) return put(next.point);
            composing = true, starter = next.point;
            return;
        }
        if (!waiting || last < next.order)
            if (const uint32_t both = composed(starter, next.point)) {
                starter = both;
                return;
            }
        if (next.order) {
            last = next.order;
            kept[waiting++] = next.point;
            return;
        }
        put(starter);
        release();
        starter = next.point;
#else
        put(next.point);
#endif
    }

    void release() {
        for (int64_t n = 0; n < waiting; ++n) put(kept[n]);
        waiting = 0;
    }

    void put(uint32_t point) {
        if (!code) code = sink(point);
    }

    Sink& sink;
    int code = ELMAN_OK;
    Mark marks[MOST_MARKS];
    int64_t count = 0;
    bool composing = false;
    uint32_t starter = 0, kept[MOST_MARKS];  // the last starter, and marks after it that were not composed
    int64_t waiting = 0;
    uint8_t last = 0;  // class of the last of them
};

}  // namespace
