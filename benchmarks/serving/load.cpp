// A load of concurrent streams of completions over HTTP, in one thread that waits with epoll: it shares the processor
// with the server. It reads every event: status, words of the text, reason of the end, end of the stream.
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <netinet/tcp.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

double now(clockid_t clock = CLOCK_MONOTONIC) {
    timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// One client, which sends its next request when it has the answer to the last, on the same connection.
struct Stream {
    int socket = -1;
    int64_t request = 0, words = 0, body = 0;  // bytes left of the current chunk
    double began = 0, first = 0;
    bool headers = false, finished = false, done = false;
    uint64_t hash = 0;
    std::string buffer = {}, line = {};
};

struct Load {
    const char* const* requests;
    const int64_t* sizes;
    const int64_t* expected;  // words of each answer
    int64_t count;
    double *first, *whole;  // seconds of each request; 0 if it was not sent
    uint64_t* hashes;  // of each text
    char* problem;
    int64_t next = 0, tokens = 0, answered = 0;

    bool fail(const Stream& stream, const char* reason, const std::string& text) {
        snprintf(problem, 1000, "request %ld: %s: %.600s", (long)stream.request, reason, text.c_str());
        return false;
    }

    bool send_next(Stream& stream) {
        if (next == count) return fail(stream, "there are too few requests", "");
        const int socket = stream.socket;
        std::string buffer = std::move(stream.buffer);
        stream = {socket, next++};
        stream.buffer = std::move(buffer), stream.buffer.clear();
        stream.hash = 1469598103934665603u;
        stream.began = now();
        if (send(socket, requests[stream.request], sizes[stream.request], 0) != sizes[stream.request])
            return fail(stream, "cannot be sent", strerror(errno));
        return true;
    }

    // The value of "text" in an event: each word begins with w; the end of a text is a line break or <eos>.
    void read_text(Stream& stream, const std::string& event) {
        size_t at = event.find("\"text\":");
        if (at == std::string::npos) return;
        at = event.find('"', at + 7);
        for (++at; at < event.size() && event[at] != '"'; ++at) {
            stream.hash = (stream.hash ^ (uint8_t)event[at]) * 1099511628211u;
            stream.words += event[at] == 'w' || event[at] == '<';
            if (event[at] == '\\') stream.words += event[++at] == 'n';
        }
        if (stream.words && !stream.first) stream.first = now() - stream.began;
    }

    bool read_line(Stream& stream) {
        std::string& line = stream.line;
        if (line.rfind("data: ", 0) == 0) {
            if (line.find("\"error\"") != std::string::npos) return fail(stream, "an error", line);
            if (line == "data: [DONE]") stream.done = true;
            if (line.find("\"finish_reason\":\"length\"") != std::string::npos ||
                line.find("\"finish_reason\": \"length\"") != std::string::npos)
                stream.finished = true;
            read_text(stream, line);
        }
        line.clear();
        return true;
    }

    bool read_body(Stream& stream, const char* data, size_t size) {
        for (size_t n = 0; n < size;) {
            const char* end = (const char*)memchr(data + n, '\n', size - n);
            const size_t to = end ? end - data : size;
            stream.line.append(data + n, to - n);
            if (end && !read_line(stream)) return false;
            n = to + !!end;
        }
        return true;
    }

    // Headers and chunks that are complete; the answer has ended with the chunk of size 0.
    bool read_answer(Stream& stream, bool& ended) {
        std::string& buffer = stream.buffer;
        size_t at = 0;
        if (!stream.headers) {
            const size_t end = buffer.find("\r\n\r\n");
            if (end == std::string::npos) return true;
            if (buffer.rfind("HTTP/1.1 200", 0) != 0) return fail(stream, "no answer", buffer);
            stream.headers = true, at = end + 4;
        }
        while (at < buffer.size()) {
            if (!stream.body) {
                const size_t end = buffer.find("\r\n", at);
                if (end == std::string::npos) break;
                const int64_t size = strtol(buffer.c_str() + at, nullptr, 16);
                if (buffer.size() < end + 4 && !size) break;
                at = end + 2, stream.body = size + 2;  // with the line break behind it
                if (!size) {
                    ended = true;
                    return true;
                }
            }
            const size_t part = std::min<size_t>(stream.body, buffer.size() - at);
            const int64_t text = std::max<int64_t>(0, std::min<int64_t>(part, stream.body - 2));
            if (!read_body(stream, buffer.data() + at, text)) return false;
            at += part, stream.body -= part;
        }
        buffer.erase(0, at);
        return true;
    }

    bool finish(Stream& stream) {
        if (!stream.done || !stream.finished || stream.words != expected[stream.request]) {
            char found[100];
            snprintf(found, 100, "%ld words of %ld, finished %d, done %d", (long)stream.words,
                (long)expected[stream.request], stream.finished, stream.done);
            return fail(stream, "a wrong answer", found);
        }
        first[stream.request] = stream.first, whole[stream.request] = now() - stream.began;
        hashes[stream.request] = stream.hash, tokens += stream.words, ++answered;
        return true;
    }
};

}  // namespace

// The streams begin within the first `ramp` seconds. Results: tokens, answers, seconds, seconds of this thread on the processor. 0, or -1 with a `problem`.
extern "C" int run_load(
    int64_t port, int64_t streams, double ramp, double seconds, const char* const* requests, const int64_t* sizes,
    const int64_t* expected, int64_t count, double* first, double* whole, uint64_t* hashes, double* results, char* problem) {
    Load load = {requests, sizes, expected, count, first, whole, hashes, problem};
    sockaddr_in address = {};
    address.sin_family = AF_INET, address.sin_port = htons((uint16_t)port), address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int waiting = epoll_create1(0), yes = 1;
    std::vector<Stream> all(streams);
    const double began = now(), busy = now(CLOCK_THREAD_CPUTIME_ID);
    bool good = true;
    for (Stream& stream : all) {
        stream.socket = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(stream.socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        if (good && connect(stream.socket, (sockaddr*)&address, sizeof(address)))
            good = load.fail(stream, "cannot connect", strerror(errno));
        epoll_event event = {EPOLLIN, {.ptr = &stream}};
        epoll_ctl(waiting, EPOLL_CTL_ADD, stream.socket, &event);
    }
    std::vector<epoll_event> events(64);
    std::vector<char> part(1 << 16);
    int64_t begun = 0;  // streams that have sent their first request, one after another
    for (int64_t open = streams; good && open;) {
        for (; good && begun < streams && now() - began >= ramp * (double)begun / (double)streams; ++begun)
            good = load.send_next(all[begun]);
        const int ready = epoll_wait(waiting, events.data(), (int)events.size(), begun < streams ? 1 : 60000);
        if (!ready && begun == streams) good = load.fail(all[0], "nothing came for a minute", "");
        for (int n = 0; good && n < ready; ++n) {
            Stream& stream = *(Stream*)events[n].data.ptr;
            const ssize_t size = recv(stream.socket, part.data(), part.size(), 0);
            if (size <= 0) {
                good = load.fail(stream, "the connection has ended", stream.buffer);
                break;
            }
            stream.buffer.append(part.data(), size);
            bool ended = false;
            good = load.read_answer(stream, ended) && (!ended || load.finish(stream));
            if (good && ended) {
                if (now() - began < seconds) good = load.send_next(stream);
                else --open, epoll_ctl(waiting, EPOLL_CTL_DEL, stream.socket, nullptr);
            }
        }
    }
    results[0] = (double)load.tokens, results[1] = (double)load.answered, results[2] = now() - began;
    results[3] = now(CLOCK_THREAD_CPUTIME_ID) - busy;
    for (Stream& stream : all) if (stream.socket >= 0) close(stream.socket);
    close(waiting);
    return good ? 0 : -1;
}
