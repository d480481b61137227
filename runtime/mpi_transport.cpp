// Ranks as MPI processes. Point-to-point messages only: the collectives are this project's own.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>
#include <mpi.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "runtime/cpus.h"
#include "runtime/error.h"
#include "runtime/raw.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw CommunicationError(fmt::format("{}: {}", call, std::string_view(text, length)));
  }
}

// --- Waiting -------------------------------------------------------------------------------------

// What a rank does between two looks at its messages. Spinning is best while every rank has a core
// of its own and fatal when not: the peer that is waited for may need this very core, and gets it
// only when the scheduler's time slice ends. So a waiting rank spins only briefly and only with a
// core of its own, then yields, then sleeps longer and longer, so that a long wait costs little.
class BackOff {
 public:
  explicit BackOff(bool own_core) : spins_(own_core ? 200 : 0) {}

  void pause() {
    ++looks_;
    if (looks_ <= spins_) {
      return;
    }
    if (looks_ <= spins_ + yields) {
      std::this_thread::yield();
      return;
    }
    sharpen_timer();
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 5 / 4, longest_sleep);
  }

  bool sleeping() const { return looks_ > spins_ + yields; }

 private:
  static constexpr int yields = 50;
  static constexpr std::chrono::nanoseconds longest_sleep{200'000};

  // Linux rounds a thread's sleeps up by 50 us unless told otherwise.
  static void sharpen_timer() {
#ifdef __linux__
    thread_local const int result = prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    static_cast<void>(result);
#endif
  }

  const int spins_;
  int looks_ = 0;
  std::chrono::nanoseconds sleep_{20'000};
};

// --- The library and its launcher ----------------------------------------------------------------

// "MPICH 4.0.2", "Open MPI v4.1.4": the first line up to a comma, without the word "Version:".
std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string_view version(text, static_cast<std::size_t>(length));
  const std::string_view line = version.substr(0, version.find_first_of(",\n"));
  std::string name;
  std::string word;
  for (const char c : std::string(line) + ' ') {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      word += c;
    } else if (!word.empty()) {
      name += word == "Version:" ? "" : (name.empty() ? "" : " ") + word;
      word.clear();
    }
  }
  return name;
}

std::optional<int> number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional(std::atoi(text));
}

// A launcher of another MPI library starts the processes, but this library does not understand how
// they are to find one another, and each is alone.
void check_launcher(int world_size) {
  if (world_size != 1) {
    return;
  }
  std::string evidence;
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (number_in_environment(size).value_or(1) > 1) {
      evidence = fmt::format("{} is {}", size, std::getenv(size));
    }
  }
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (evidence.empty() && number_in_environment(rank).value_or(0) > 0) {
      evidence = fmt::format("{} is {}", rank, std::getenv(rank));
    }
  }
  if (!evidence.empty()) {
    throw CommunicationError(fmt::format(
        "this program was built with {}, which sees one process, but a launcher has started "
        "several ({}): it belongs to another MPI library. Start the program with the mpiexec of "
        "{} (on Debian: mpiexec.mpich or mpiexec.openmpi), or build it with the launcher's library",
        library_name(), evidence, library_name()));
  }
}

// Ends the process when the library does not come up in time: another rank is missing, stopped or
// another program, and nothing else would end the wait for it.
class StartLimit {
 public:
  StartLimit() : watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

 private:
  static constexpr std::chrono::seconds limit{60};

  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto stopped = [&] { return stop.stop_requested(); };
    if (!wake_.wait_for(lock, stop, limit, stopped) && !stopped()) {
      fmt::print(stderr,
                 "ringworld: MPI did not start within {} s: a rank is missing, stopped or another "
                 "program; start all ranks with one mpiexec command\n",
                 limit.count());
      std::_Exit(static_cast<int>(ExitCode::communication));
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread watcher_;  // last: it uses the others
};

// A rank whose launcher is gone has nobody left to end it.
void end_with_launcher() {
#ifdef __linux__
  for (const char* rank : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"}) {
    if (std::getenv(rank) != nullptr) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
  }
#endif
}

// --- The transport -------------------------------------------------------------------------------

class MpiTransport final : public Transport {
 public:
  MpiTransport(int* argc, char*** argv) {
    const StartLimit start_limit;
    end_with_launcher();
    int level = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    try {
      set_up(level);
    } catch (...) {
      MPI_Finalize();
      throw;
    }
  }

  ~MpiTransport() override {
    if (posted_.empty() && std::uncaught_exceptions() <= exceptions_) {
      MPI_Comm_free(&world_);
      MPI_Finalize();
    } else {
      // The library may still write to what it was given, until the process ends.
      new std::unordered_map(std::move(posted_));
    }
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int local_ranks() const override { return local_ranks_; }
  std::string description() const override { return library_name(); }
  void bind(Backend& backend) override { backend_ = &backend; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  Ticket send(int to, Tag tag, const Tensor& x) override {
    Posted posted{to, true, x, {}, {}, {}};
    for_pieces(x, [&](std::byte* address, int bytes) {
      check(MPI_Isend(address, bytes, MPI_BYTE, to, tag, world_, &posted.begin(bytes)),
            "MPI_Isend");
    });
    return keep(std::move(posted));
  }

  Ticket receive(int from, Tag tag, const Tensor& out) override {
    return keep(post_receive(from, tag, out));
  }

  Ticket receive_reduce(int from, Tag tag, const Tensor& out, ReduceOp op) override {
    const Tensor staging =
        backend_->empty(out.dtype(), Shape{out.elements()}, Category::communication);
    Posted posted = post_receive(from, tag, staging);
    posted.reduce_into = out;
    posted.op = op;
    return keep(std::move(posted));
  }

  std::size_t wait_any(std::span<const Ticket> tickets) override {
    using Clock = std::chrono::steady_clock;
    BackOff back_off(own_core_);
    std::optional<Clock::time_point> deadline;  // set at the first sleep: no clock on the fast path
    for (;;) {
      check_usable();
      for (std::size_t i = 0; i < tickets.size(); ++i) {
        if (completed(tickets[i])) {
          return i;
        }
      }
      back_off.pause();
      if (back_off.sleeping() && timeout_.count() != 0) {
        const auto now = Clock::now();
        deadline = deadline.value_or(now + timeout_);
        if (now >= *deadline) {
          const Posted& posted = posted_.at(tickets.front());
          give_up(fmt::format("waited {} s for rank {} to {}",
                              static_cast<double>(timeout_.count()) / 1000, posted.peer,
                              posted.is_send ? "receive" : "send"));
        }
      }
    }
  }

  void abandon() override { abandoned_ = true; }

 private:
  // A posted verb, in as many pieces as its size needs.
  struct Posted {
    int peer;
    bool is_send;
    Tensor tensor;       // what is sent, or where the message goes
    Tensor reduce_into;  // undefined unless it is reduced then
    ReduceOp op;
    struct Piece {
      MPI_Request request;
      int bytes;
    };
    std::vector<Piece> pieces;

    MPI_Request& begin(int bytes) {
      return pieces.emplace_back(Piece{MPI_REQUEST_NULL, bytes}).request;
    }
  };

  void set_up(int level) {
    check(MPI_Comm_size(MPI_COMM_WORLD, &world_size_), "MPI_Comm_size");
    check_launcher(world_size_);
    // The communication stream's thread calls MPI while the main thread does not.
    if (level < MPI_THREAD_SERIALIZED) {
      throw CommunicationError(
          fmt::format("{} was built without thread support (MPI_THREAD_SERIALIZED), which the "
                      "communication stream needs; install a build with threads",
                      library_name()));
    }
    check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
    MPI_Comm node = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
          "MPI_Comm_split_type");
    check(MPI_Comm_size(node, &local_ranks_), "MPI_Comm_size");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
    own_core_ = local_ranks_ <= allowed_cpus();
  }

  // MPI counts bytes in an int.
  template <typename Post>
  static void for_pieces(const Tensor& tensor, const Post& post) {
    static constexpr std::int64_t longest = std::int64_t{1} << 30;
    static_assert(longest <= INT_MAX);
    const std::int64_t total = tensor.bytes().value;
    std::int64_t first = 0;
    do {
      const std::int64_t bytes = std::min(total - first, longest);
      post(raw_bytes(tensor) + first, static_cast<int>(bytes));
      first += bytes;
    } while (first < total);
  }

  Posted post_receive(int from, Tag tag, const Tensor& out) {
    Posted posted{from, false, out, {}, {}, {}};
    for_pieces(out, [&](std::byte* address, int bytes) {
      check(MPI_Irecv(address, bytes, MPI_BYTE, from, tag, world_, &posted.begin(bytes)),
            "MPI_Irecv");
    });
    return posted;
  }

  Ticket keep(Posted posted) {
    const Ticket ticket = next_ticket_++;
    posted_.emplace(ticket, std::move(posted));
    check_usable();
    return ticket;
  }

  // Looks once; forgets the verb when it is complete.
  bool completed(Ticket ticket) {
    const auto found = posted_.find(ticket);
    Posted& posted = found->second;
    while (!posted.pieces.empty()) {
      Posted::Piece& piece = posted.pieces.back();
      int done = 0;
      MPI_Status status;
      const int code = MPI_Test(&piece.request, &done, &status);
      if (code != MPI_SUCCESS) {
        fail_message(posted, code);
      }
      if (done == 0) {
        return false;
      }
      if (!posted.is_send) {
        check_length(posted, piece, status);
      }
      posted.pieces.pop_back();
    }
    if (posted.reduce_into.defined()) {
      backend_->combine(posted.reduce_into.view(Shape{posted.tensor.elements()}), posted.tensor,
                        posted.op);
    }
    posted_.erase(found);
    return true;
  }

  void check_length(const Posted& posted, const Posted::Piece& piece, const MPI_Status& status) {
    int received = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
    if (received != piece.bytes) {
      give_up(fmt::format("expected {} bytes from rank {} and got {}", piece.bytes, posted.peer,
                          received));
    }
  }

  [[noreturn]] void fail_message(const Posted& posted, int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    give_up(fmt::format("could not {} rank {}: {}", posted.is_send ? "send to" : "receive from",
                        posted.peer, std::string_view(text, length)));
  }

  void check_usable() {
    if (!broken_.empty()) {
      throw CommunicationError(broken_);
    }
    if (abandoned_) {
      give_up("ends its communication");
    }
  }

  [[noreturn]] void give_up(const std::string& reason) {
    broken_ = fmt::format("rank {} {}", rank_, reason);
    throw CommunicationError(broken_);
  }

  const int exceptions_ = std::uncaught_exceptions();
  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0;
  int world_size_ = 1;
  int local_ranks_ = 1;
  bool own_core_ = false;  // every rank on this machine
  Backend* backend_ = nullptr;
  std::chrono::milliseconds timeout_{0};
  std::unordered_map<Ticket, Posted> posted_;
  Ticket next_ticket_ = 0;
  std::atomic<bool> abandoned_ = false;
  std::string broken_;  // why, once a wait has thrown
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(int* argc, char*** argv) {
  return std::make_unique<MpiTransport>(argc, argv);
}

std::vector<std::string> gather_mpi_failures(const std::string& message,
                                             std::chrono::milliseconds patience) {
  constexpr std::size_t length = 4001;  // zero-terminated
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  // Static: when the others do not come, the library keeps using these until the process ends.
  static std::vector<char> own(length);
  static std::vector<char> all(length * static_cast<std::size_t>(ranks));
  message.copy(own.data(), length - 1);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(own.data(), static_cast<int>(length), MPI_CHAR, all.data(),
                 static_cast<int>(length), MPI_CHAR, MPI_COMM_WORLD, &request);

  const auto deadline = std::chrono::steady_clock::now() + patience;
  BackOff back_off(false);
  for (int done = 0; done == 0; back_off.pause()) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0 && std::chrono::steady_clock::now() >= deadline) {
      return {};
    }
  }
  std::vector<std::string> messages;
  for (int rank = 0; rank < ranks; ++rank) {
    messages.emplace_back(all.data() + length * static_cast<std::size_t>(rank));
  }
  return messages;
}

void abort_mpi_job(int exit_code) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized != 0 && finalized == 0) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  std::_Exit(exit_code);
}

}  // namespace ringworld
