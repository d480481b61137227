// Ranks as MPI processes. Point-to-point messages only: the collectives are this project's own.
#include <algorithm>
#include <array>
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
#include <unistd.h>
#endif

#include "runtime/cgroup.h"
#include "runtime/clock.h"
#include "runtime/cpus.h"
#include "runtime/error.h"
#include "runtime/handshake.h"
#include "runtime/launcher.h"
#include "runtime/mpi_collectives.h"
#include "runtime/process.h"
#include "runtime/raw.h"
#include "runtime/transport.h"
#include "runtime/waiting.h"

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
  if (find_launcher().rank) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
#endif
}

// --- The transport -------------------------------------------------------------------------------

class MpiTransport final : public Transport {
 public:
  MpiTransport(int* argc, char*** argv) {
    const StartLimit start_limit;
    find_launcher();  // before MPI sets variables of its own
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
      library_.reset();
      MPI_Comm_free(&control_);
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
  bool own_core() const override { return own_core_; }
  std::string_view name() const override { return "mpi"; }
  std::string description() const override { return library_name(); }
  void bind(Backend& backend) override { backend_ = &backend; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  Ticket send(int to, Signature signature, const Tensor& x) override {
    Posted posted{.peer = to, .is_send = true, .signature = signature, .tensor = x};
    for_pieces(x, [&](std::byte* address, int bytes) {
      check(
          MPI_Isend(address, bytes, MPI_BYTE, to, tag_of(signature), world_, &posted.begin(bytes)),
          "MPI_Isend");
    });
    return keep(std::move(posted));
  }

  // Whatever comes next from that rank is taken, and its tag looked at then.
  Ticket receive(int from, Signature signature, const Tensor& out) override {
    Posted posted{.peer = from, .is_send = false, .signature = signature, .tensor = out};
    for_pieces(out, [&](std::byte* address, int bytes) {
      check(MPI_Irecv(address, bytes, MPI_BYTE, from, MPI_ANY_TAG, world_, &posted.begin(bytes)),
            "MPI_Irecv");
    });
    return keep(std::move(posted));
  }

  Ticket read(int from, Signature signature, DType dtype, std::int64_t elements) override {
    const Tensor staging = backend_->empty(dtype, Shape{elements}, Category::communication);
    const Ticket ticket = receive(from, signature, staging);
    readings_.emplace(ticket, staging);
    return ticket;
  }
  const Tensor& reading(Ticket ticket) override { return readings_.at(ticket); }
  void done_reading(Ticket ticket) override { readings_.erase(ticket); }
  bool in_place(int /*peer*/) const override { return false; }

  std::size_t wait_any(std::span<const Ticket> tickets) override {
    Waiting waiting(own_core_, timeout_);
    std::optional<Clock::time_point> seen_ended;
    for (;;) {
      check_usable();
      for (std::size_t i = 0; i < tickets.size(); ++i) {
        if (completed(tickets[i])) {
          return i;
        }
      }
      if (waiting.pause()) {
        continue;
      }
      if (waiting.expired()) {
        const Posted& posted = posted_.at(tickets.front());
        give_up(fmt::format("waited {} s for rank {} to {}",
                            static_cast<double>(timeout_.count()) / 1000, posted.peer,
                            posted.is_send ? "receive" : "send"));
      }
      if (const std::vector<int> ended = processes_.ended(); !ended.empty()) {
        seen_ended = seen_ended.value_or(Clock::now());
        if (Clock::now() - *seen_ended > last_words) {
          give_up(fmt::format("waits, but the process of rank {} has ended", ended.front()));
        }
      }
      answer();
      waiting.sleep();
    }
  }

  bool test(Ticket ticket) override {
    check_usable();
    return completed(ticket);
  }
  void attend() override { answer(); }

  Board& board() override { return board_; }

  std::vector<std::optional<Said>> statements(std::chrono::milliseconds patience) override {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    // Never freed: where an answer does not come, the library keeps the buffer.
    auto& answers = *new std::vector<Statement>(static_cast<std::size_t>(world_size_));
    std::vector<MPI_Request> requests(answers.size(), MPI_REQUEST_NULL);
    std::vector<std::optional<Said>> statements(answers.size());
    statements[static_cast<std::size_t>(rank_)] = Said{ringworld::read(board_), true};
    for (int peer = 0; peer < world_size_; ++peer) {
      const auto i = static_cast<std::size_t>(peer);
      if (peer != rank_) {
        MPI_Irecv(answers[i].data(), sizeof(Statement), MPI_BYTE, peer, answer_tag, control_,
                  &requests[i]);
        MPI_Request question = MPI_REQUEST_NULL;
        MPI_Isend(nullptr, 0, MPI_BYTE, peer, question_tag, control_, &question);
        MPI_Request_free(&question);
      }
    }
    Waiting waiting(false, patience);
    for (;;) {
      bool all = true;
      for (std::size_t peer = 0; peer < requests.size(); ++peer) {
        int done = 0;
        if (!statements[peer] &&
            MPI_Test(&requests[peer], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) {
          statements[peer] = Said{answers[peer], true};
        }
        all = all && statements[peer];
      }
      answer();
      if (all || std::chrono::steady_clock::now() >= deadline) {
        return statements;
      }
      waiting.sleep();
    }
  }

  LibraryCollectives* library() override {
    if (library_ == nullptr) {
      library_ = make_mpi_collectives(
          world_, [this] { return timeout_; }, [this] { return processes_.ended(); });
    }
    return library_.get();
  }
  std::vector<int> ended() const override { return processes_.ended(); }

  void abandon() override { abandoned_ = true; }

 private:
  // What a rank sent before its process ended counts, and arrives within this.
  static constexpr std::chrono::milliseconds last_words{200};
  static constexpr int question_tag = 1;
  static constexpr int answer_tag = 2;

  // Every MPI library supports tags up to 32767.
  static int tag_of(Signature signature) { return static_cast<int>(signature & 0x7fff); }

  // A posted verb, in as many pieces as its size needs.
  struct Posted {
    int peer;
    bool is_send;
    Signature signature;
    Tensor tensor;  // what is sent, or where the message goes
    struct Piece {
      MPI_Request request;
      int bytes;
    };
    std::vector<Piece> pieces = {};

    MPI_Request& begin(int bytes) {
      return pieces.emplace_back(Piece{MPI_REQUEST_NULL, bytes}).request;
    }
  };

  void set_up(int level) {
    check(MPI_Comm_size(MPI_COMM_WORLD, &world_size_), "MPI_Comm_size");
    if (const std::string problem = launcher_problem(world_size_, library_name(), find_launcher());
        !problem.empty()) {
      throw CommunicationError(problem);
    }
    // The communication stream's thread calls MPI while the main thread does not.
    if (level < MPI_THREAD_SERIALIZED) {
      throw CommunicationError(
          fmt::format("{} was built without thread support (MPI_THREAD_SERIALIZED), which the "
                      "communication stream needs; install a build with threads",
                      library_name()));
    }
    check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
    // A failed receive may be reported to either of them.
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_dup(world_, &control_), "MPI_Comm_dup");
    MPI_Comm node = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
          "MPI_Comm_split_type");
    check(MPI_Comm_size(node, &local_ranks_), "MPI_Comm_size");
    CpuMask mask = allowed_cpu_mask();  // of all ranks here: a launcher may bind each to its own
    check(MPI_Allreduce(MPI_IN_PLACE, mask.data(), static_cast<int>(mask.size()), MPI_UINT64_T,
                        MPI_BOR, node),
          "MPI_Allreduce");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
    meet_neighbours();
    const double quota = cgroup_limits().cpus;
    own_core_ = local_ranks_ <= count(mask) && (quota == 0 || local_ranks_ <= quota);
  }

  // Those that see each other's process numbers.
  void meet_neighbours() {
#ifdef __linux__
    using Neighbour = std::array<std::uint64_t, 2>;
    const Neighbour own{machine_of_this_process(), static_cast<std::uint64_t>(getpid())};
    std::vector<Neighbour> all(static_cast<std::size_t>(world_size_));
    check(MPI_Allgather(own.data(), 2, MPI_UINT64_T, all.data(), 2, MPI_UINT64_T, world_),
          "MPI_Allgather");
    for (int rank = 0; rank < world_size_; ++rank) {
      const auto [machine, process] = all[static_cast<std::size_t>(rank)];
      if (rank != rank_ && machine == own[0]) {
        processes_.add(rank, static_cast<std::int64_t>(process));
      }
    }
#endif
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
      status.MPI_TAG = MPI_ANY_TAG;
      const int code = MPI_Test(&piece.request, &done, &status);
      if (code != MPI_SUCCESS) {
        fail_message(posted, piece, code);
      }
      if (done == 0) {
        return false;
      }
      if (!posted.is_send) {
        check_message(posted, piece, status);
      }
      posted.pieces.pop_back();
    }
    posted_.erase(found);
    return true;
  }

  void check_message(const Posted& posted, const Posted::Piece& piece, const MPI_Status& status) {
    if (status.MPI_TAG != tag_of(posted.signature)) {
      give_up(fmt::format("meets rank {} in another call", posted.peer));
    }
    int received = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
    if (received != piece.bytes) {
      give_up(fmt::format("meets rank {} in another call (expected {} bytes and got {})",
                          posted.peer, piece.bytes, received));
    }
  }

  [[noreturn]] void fail_message(const Posted& posted, const Posted::Piece& piece, int code) {
    int kind = MPI_SUCCESS;
    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_TRUNCATE) {
      give_up(fmt::format("meets rank {} in another call (expected {} bytes and got more)",
                          posted.peer, piece.bytes));
    }
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    give_up(fmt::format("could not {} rank {}: {}", posted.is_send ? "send to" : "receive from",
                        posted.peer, std::string_view(text, length)));
  }

  // Tells whoever asks what this rank does.
  void answer() {
    int asked = 0;
    MPI_Status status;
    while (MPI_Iprobe(MPI_ANY_SOURCE, question_tag, control_, &asked, &status) == MPI_SUCCESS &&
           asked != 0) {
      MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, question_tag, control_, MPI_STATUS_IGNORE);
      MPI_Request request = MPI_REQUEST_NULL;
      const auto* said =
          new Statement(ringworld::read(board_));  // never freed, as the asked one ends the job
      MPI_Isend(said->data(), sizeof(Statement), MPI_BYTE, status.MPI_SOURCE, answer_tag, control_,
                &request);
      MPI_Request_free(&request);
    }
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
  MPI_Comm control_ = MPI_COMM_NULL;  // for statements
  int rank_ = 0;
  int world_size_ = 1;
  int local_ranks_ = 1;
  bool own_core_ = false;  // every rank on this machine
  PeerProcesses processes_;
  Backend* backend_ = nullptr;
  std::chrono::milliseconds timeout_{0};
  std::unordered_map<Ticket, Posted> posted_;
  std::unordered_map<Ticket, Tensor> readings_;
  Board board_{};
  std::unique_ptr<LibraryCollectives> library_;
  Ticket next_ticket_ = 0;
  std::atomic<bool> abandoned_ = false;
  std::string broken_;  // why, once a wait has thrown
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(int* argc, char*** argv) {
  return std::make_unique<MpiTransport>(argc, argv);
}

std::vector<std::optional<std::string>> gather_mpi_failures(const std::string& message,
                                                            std::chrono::milliseconds patience) {
  constexpr int length = 4001;  // zero-terminated
  constexpr int tag = 3;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto count = static_cast<std::size_t>(ranks);
  // Never freed: when the others do not come, the library keeps using these until the process ends.
  auto& own = *new std::array<char, length>();
  auto& theirs = *new std::vector<std::array<char, length>>(count);
  std::vector<MPI_Request> requests(count, MPI_REQUEST_NULL);
  std::vector<std::optional<std::string>> messages(count);
  message.copy(own.data(), length - 1);
  messages[static_cast<std::size_t>(rank)] = own.data();
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) {
      const auto i = static_cast<std::size_t>(peer);
      MPI_Irecv(theirs[i].data(), length, MPI_CHAR, peer, tag, MPI_COMM_WORLD, &requests[i]);
      MPI_Request sent = MPI_REQUEST_NULL;
      MPI_Isend(own.data(), length, MPI_CHAR, peer, tag, MPI_COMM_WORLD, &sent);
      MPI_Request_free(&sent);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (Waiting waiting(false, patience);; waiting.sleep()) {
    bool all = true;
    for (std::size_t peer = 0; peer < count; ++peer) {
      int done = 0;
      if (!messages[peer] && MPI_Test(&requests[peer], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
          done != 0) {
        messages[peer] = theirs[peer].data();
      }
      all = all && messages[peer];
    }
    if (all || std::chrono::steady_clock::now() >= deadline) {
      return messages;
    }
  }
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
