// The text of generated tokens: complete characters, up to a stop string (generation/detokenize.py). Needs text.h.

namespace {

constexpr int64_t LONGEST_STOP = 256;

class Writer {
  public:
    // `buffer` has room for room_for(text).
    Writer(const Text& text, const elman_settings& settings, char* buffer)
        : text(text), settings(settings), buffer(buffer), first(true) {}

    static int64_t room_for(const Text& text) { return 3 * (text.longest + 1) + 16 + LONGEST_STOP; }

    // The text before a token counts as written: a space depends on it.
    void skip(int64_t token) {
        uint8_t* const end = (uint8_t*)buffer;
        decode(token, end);
        held = 0;
    }

    // Text that can be shown, in `buffer`; the rest moves to its beginning with the next call.
    int64_t push(int64_t token) {
        move();
        return show(decode(token, (uint8_t*)buffer + held));
    }

    // A new text begins on a new line.
    int64_t end_line() {
        move();
        int64_t written = decoder.flush((uint8_t*)buffer + held);
        buffer[held + written++] = '\n';
        first = true;
        return show(written);
    }

    // Everything that is left.
    int64_t close() {
        move();
        const int64_t shown = show(decoder.flush((uint8_t*)buffer + held)) + (stopped ? 0 : held);
        held = 0;
        return shown;
    }

    bool stopped = false;  // at a stop string

  private:
    int64_t decode(int64_t token, uint8_t* to) {
        if (!text.has(token)) return 0;
        const uint8_t space = ' ';
        int64_t written = !first && SEPARATED ? decoder.push(&space, 1, to) : 0;
        written += decoder.push(text.spelling(token), text.size(token), to + written);
        first = false;
        return written;
    }

    // How much of the text with `added` new bytes can be shown: no more than what cannot begin a stop string.
    int64_t show(int64_t added) {
        const int64_t size = held + added;
        shown = size;
        for (int64_t end = 1; end <= size && !stopped; ++end)
            for (int64_t n = 0; n < settings.stops; ++n) {
                const int64_t length = (int64_t)std::strlen(settings.stop[n]);
                if (length <= end && !std::memcmp(buffer + end - length, settings.stop[n], (size_t)length)) {
                    shown = stopped ? std::min(shown, end - length) : end - length;
                    stopped = true;
                }
            }
        held = 0;
        for (int64_t n = 0; n < settings.stops && !stopped; ++n)
            for (int64_t length = std::min((int64_t)std::strlen(settings.stop[n]) - 1, size); length > held; --length)
                if (!std::memcmp(buffer + size - length, settings.stop[n], (size_t)length)) held = length;
        return shown -= held;
    }

    void move() {
        std::memmove(buffer, buffer + shown, (size_t)held);
        shown = 0;
    }

    const Text& text;
    const elman_settings& settings;
    char* const buffer;
    StreamDecoder decoder;
    bool first;  // no token yet
    int64_t held = 0, shown = 0;  // `held` bytes behind those that are shown may begin a stop string
};

}  // namespace
