#include "runtime/mpi_collectives.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/error.h"
#include "runtime/raw.h"

namespace ringworld {
namespace {

// --- Calls that take too long --------------------------------------------------------------------

// Ends the process when one call takes longer than the limit, or goes on after the process of
// another rank has ended. A call costs its thread three stores.
class Watchdog {
 public:
  Watchdog(int rank, const std::function<std::vector<int>()>& ended)
      : rank_(rank),
        ended_(ended),
        watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

  void begin(const char* call, std::chrono::milliseconds limit) {
    call_.store(call, std::memory_order_relaxed);
    limit_.store(limit.count(), std::memory_order_relaxed);
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void end() {
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds shortest_look{10};
  static constexpr std::chrono::milliseconds longest_look{500};

  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    std::uint64_t seen = 0;
    Clock::time_point since;
    std::chrono::milliseconds look = longest_look;
    while (!wake_.wait_for(lock, stop, look, [&] { return stop.stop_requested(); })) {
      const std::uint64_t count = count_.load(std::memory_order_acquire);
      const std::chrono::milliseconds limit(limit_.load(std::memory_order_relaxed));
      const Clock::time_point now = Clock::now();
      if (count != seen) {
        seen = count;
        since = now;
      } else if (const std::vector<int> ended =
                     ended_ && count % 2 == 1 ? ended_() : std::vector<int>();
                 !ended.empty()) {
        fmt::print(stderr,
                   "ringworld: rank {} waits inside {}, but the process of rank {} has ended\n",
                   rank_, call_.load(std::memory_order_relaxed), ended.front());
        std::_Exit(static_cast<int>(ExitCode::communication));
      } else if (count % 2 == 1 && limit.count() != 0 && now - since >= limit) {
        fmt::print(stderr,
                   "ringworld: rank {} has waited {} s inside {}, which cannot be interrupted: the "
                   "ranks disagree or one is missing. Every rank must make the same calls in the "
                   "same order, with the same count, dtype, reduction and root: check whether all "
                   "still run, and whether the timeout is longer than a rank may be late\n",
                   rank_, static_cast<double>(limit.count()) / 1000,
                   call_.load(std::memory_order_relaxed));
        std::_Exit(static_cast<int>(ExitCode::communication));
      }
      look = limit.count() == 0 ? longest_look : std::clamp(limit / 8, shortest_look, longest_look);
    }
  }

  const int rank_;
  const std::function<std::vector<int>()>& ended_;
  std::atomic<std::uint64_t> count_ = 0;  // odd while a call is under way
  std::atomic<const char*> call_ = "";
  std::atomic<std::int64_t> limit_ = 0;  // milliseconds
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread watcher_;  // last: it uses the others
};

// --- What MPI's interface takes ------------------------------------------------------------------

int to_int(const char* call, std::int64_t elements) {
  if (elements > INT_MAX) {
    throw CommunicationError(fmt::format(
        "{} counts elements in an int, which ends at {}; found {}: use less, or one of this "
        "project's algorithms, which have no such limit",
        call, INT_MAX, elements));
  }
  return static_cast<int>(elements);
}

// Blocks side by side, as MPI describes them.
struct Blocks {
  std::vector<int> counts;
  std::vector<int> first;

  Blocks(const char* call, LibraryCollectives::Counts elements) {
    std::int64_t end = 0;
    for (const std::int64_t count : elements) {
      counts.push_back(to_int(call, count));
      first.push_back(to_int(call, end));
      end += count;
    }
  }
};

bool all_equal(LibraryCollectives::Counts counts) {
  return std::ranges::count(counts, counts[0]) == std::ssize(counts);
}

// For moving: 16 bits are 16 bits.
MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::bf16:
    case DType::f16:
      return MPI_UINT16_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i8:
      return MPI_INT8_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op op_of(DType dtype, ReduceOp op) {
  if (dtype == DType::bf16 || dtype == DType::f16) {
    throw UsageError(
        fmt::format("the mpi reference has no {} {}; use another dtype, or one of this project's "
                    "algorithms",
                    name_of(dtype), name_of(op)));
  }
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return MPI_SUM;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
  }
  return MPI_OP_NULL;
}

// --- The calls -----------------------------------------------------------------------------------

class MpiCollectives final : public LibraryCollectives {
 public:
  MpiCollectives(MPI_Comm world, std::function<std::chrono::milliseconds()> timeout,
                 std::function<std::vector<int>()> ended)
      : world_(world), timeout_(std::move(timeout)), ended_(std::move(ended)) {
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &ranks_);
  }

  void all_reduce(const Tensor& out, const Tensor& x, ReduceOp op) override {
    static constexpr const char* name = "MPI_Allreduce";
    const int count = to_int(name, x.elements());
    const MPI_Op mpi_op = op_of(x.dtype(), op);
    call(name, [&] {
      return MPI_Allreduce(out.same_view(x) ? MPI_IN_PLACE : raw_bytes(x), raw_bytes(out), count,
                           type_of(x.dtype()), mpi_op, world_);
    });
  }

  void reduce_scatter(const Tensor& out, const Tensor& x, Counts counts, ReduceOp op) override {
    const Tensor own = own_block(x, counts);
    if (!out.same_view(own)) {
      reduce_scatter(raw_bytes(out), raw_bytes(x), x.dtype(), counts, op);
      return;
    }
    // MPI's "in place" leaves the result at the beginning of the whole.
    reduce_scatter(raw_bytes(x), MPI_IN_PLACE, x.dtype(), counts, op);
    if (own.bytes() > Bytes(0)) {  // what is empty has no address
      std::memmove(raw_bytes(own), raw_bytes(x), static_cast<std::size_t>(own.bytes().value));
    }
  }

  void all_gather(const Tensor& out, const Tensor& x, Counts counts) override {
    const void* send = x.same_view(own_block(out, counts)) ? MPI_IN_PLACE : raw_bytes(x);
    const MPI_Datatype type = type_of(x.dtype());
    if (all_equal(counts)) {
      static constexpr const char* name = "MPI_Allgather";
      const int count = to_int(name, counts[0]);
      call(name,
           [&] { return MPI_Allgather(send, count, type, raw_bytes(out), count, type, world_); });
      return;
    }
    static constexpr const char* name = "MPI_Allgatherv";
    const Blocks blocks(name, counts);
    const int count = to_int(name, x.elements());
    call(name, [&] {
      return MPI_Allgatherv(send, count, type, raw_bytes(out), blocks.counts.data(),
                            blocks.first.data(), type, world_);
    });
  }

  void broadcast(const Tensor& x, int root) override {
    static constexpr const char* name = "MPI_Bcast";
    const int count = to_int(name, x.elements());
    call(name, [&] { return MPI_Bcast(raw_bytes(x), count, type_of(x.dtype()), root, world_); });
  }

  void reduce(const Tensor& out, const Tensor& x, ReduceOp op, int root) override {
    static constexpr const char* name = "MPI_Reduce";
    const int count = to_int(name, x.elements());
    const MPI_Op mpi_op = op_of(x.dtype(), op);
    const bool is_root = rank_ == root;
    const void* send = raw_bytes(x);
    if (is_root && out.same_view(x)) {  // MPICH 4.0 copies from the address MPI_IN_PLACE here
      copy_.assign(raw_bytes(x), raw_bytes(x) + x.bytes().value);
      send = copy_.data();
    }
    void* receive = is_root ? raw_bytes(out) : nullptr;
    call(name, [&] {
      return MPI_Reduce(send, receive, count, type_of(x.dtype()), mpi_op, root, world_);
    });
  }

  void all_to_all(const Tensor& out, const Tensor& x) override {
    static constexpr const char* name = "MPI_Alltoall";
    const int count = to_int(name, x.elements() / ranks_);
    const MPI_Datatype type = type_of(x.dtype());
    call(name, [&] {
      return MPI_Alltoall(raw_bytes(x), count, type, raw_bytes(out), count, type, world_);
    });
  }

  void all_to_all(const Tensor& out, Counts receive_counts, const Tensor& x,
                  Counts send_counts) override {
    static constexpr const char* name = "MPI_Alltoallv";
    const Blocks sent(name, send_counts);
    const Blocks received(name, receive_counts);
    const MPI_Datatype type = type_of(x.dtype());
    call(name, [&] {
      return MPI_Alltoallv(raw_bytes(x), sent.counts.data(), sent.first.data(), type,
                           raw_bytes(out), received.counts.data(), received.first.data(), type,
                           world_);
    });
  }

  void gather(const Tensor& out, const Tensor& x, Counts counts, int root) override {
    const bool is_root = rank_ == root;
    const void* send = is_root && x.same_view(own_block(out, counts)) ? MPI_IN_PLACE : raw_bytes(x);
    void* receive = is_root ? raw_bytes(out) : nullptr;
    const MPI_Datatype type = type_of(x.dtype());
    if (all_equal(counts)) {
      static constexpr const char* name = "MPI_Gather";
      const int count = to_int(name, counts[0]);
      call(name, [&] { return MPI_Gather(send, count, type, receive, count, type, root, world_); });
      return;
    }
    static constexpr const char* name = "MPI_Gatherv";
    const Blocks blocks(name, counts);
    const int count = to_int(name, x.elements());
    call(name, [&] {
      return MPI_Gatherv(send, count, type, receive, blocks.counts.data(), blocks.first.data(),
                         type, root, world_);
    });
  }

  void scatter(const Tensor& out, const Tensor& x, Counts counts, int root) override {
    const bool is_root = rank_ == root;
    const void* send = is_root ? raw_bytes(x) : nullptr;
    void* receive = is_root && out.same_view(own_block(x, counts)) ? MPI_IN_PLACE : raw_bytes(out);
    const MPI_Datatype type = type_of(out.dtype());
    if (all_equal(counts)) {
      static constexpr const char* name = "MPI_Scatter";
      const int count = to_int(name, counts[0]);
      call(name,
           [&] { return MPI_Scatter(send, count, type, receive, count, type, root, world_); });
      return;
    }
    static constexpr const char* name = "MPI_Scatterv";
    const Blocks blocks(name, counts);
    const int count = to_int(name, out.elements());
    call(name, [&] {
      return MPI_Scatterv(send, blocks.counts.data(), blocks.first.data(), type, receive, count,
                          type, root, world_);
    });
  }

  void barrier() override {
    call("MPI_Barrier", [&] { return MPI_Barrier(world_); });
  }

 private:
  template <typename Body>
  void call(const char* name, const Body& body) {
    if (!watchdog_) {
      watchdog_.emplace(rank_, ended_);
    }
    watchdog_->begin(name, timeout_());
    const int code = body();
    watchdog_->end();
    if (code != MPI_SUCCESS) {
      char text[MPI_MAX_ERROR_STRING];
      int length = 0;
      MPI_Error_string(code, text, &length);
      throw CommunicationError(fmt::format("rank {} could not complete {}: {}", rank_, name,
                                           std::string_view(text, length)));
    }
  }

  Tensor own_block(const Tensor& whole, Counts counts) const {
    const auto before = counts.first(static_cast<std::size_t>(rank_));
    return whole.slice(std::accumulate(before.begin(), before.end(), std::int64_t{0}),
                       counts[static_cast<std::size_t>(rank_)]);
  }

  void reduce_scatter(void* out, const void* x, DType dtype, Counts counts, ReduceOp op) {
    const MPI_Op mpi_op = op_of(dtype, op);
    if (all_equal(counts)) {
      static constexpr const char* name = "MPI_Reduce_scatter_block";
      const int count = to_int(name, counts[0]);
      call(name,
           [&] { return MPI_Reduce_scatter_block(x, out, count, type_of(dtype), mpi_op, world_); });
      return;
    }
    static constexpr const char* name = "MPI_Reduce_scatter";
    const Blocks blocks(name, counts);
    call(name, [&] {
      return MPI_Reduce_scatter(x, out, blocks.counts.data(), type_of(dtype), mpi_op, world_);
    });
  }

  std::vector<std::byte> copy_;  // of what is reduced in place
  const MPI_Comm world_;
  const std::function<std::chrono::milliseconds()> timeout_;
  const std::function<std::vector<int>()> ended_;
  int rank_ = 0;
  int ranks_ = 1;
  std::optional<Watchdog> watchdog_;  // from the first call on
};

}  // namespace

std::unique_ptr<LibraryCollectives> make_mpi_collectives(
    MPI_Comm world, std::function<std::chrono::milliseconds()> timeout,
    std::function<std::vector<int>()> ended) {
  return std::make_unique<MpiCollectives>(world, std::move(timeout), std::move(ended));
}

}  // namespace ringworld
