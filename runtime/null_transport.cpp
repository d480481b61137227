// One process as one rank of any world, for dry runs: whatever is posted is complete at once, and
// nothing moves. The communicator above counts calls and bytes as it does in a real run, and takes
// the memory that it would take, since all that decides about either is answered as the real
// transport would.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "runtime/error.h"
#include "runtime/transport.h"

namespace ringworld {
namespace {

class NullTransport final : public Transport {
 public:
  NullTransport(int rank, int world_size, const NullOptions& options)
      : rank_(rank),
        world_size_(world_size),
        // A single rank has nobody to share memory with, and its job stays with MPI.
        as_(world_size == 1 ? NullOptions::As::mpi : options.as),
        local_ranks_(options.local_ranks == 0 ? world_size : options.local_ranks),
        peers_memory_(std::make_shared<const Storage>(nullptr, make_no_memory()->allocate(Bytes(1)),
                                                      Bytes(1), Category::communication)) {
    if (rank < 0 || rank >= world_size || local_ranks_ < 1 || local_ranks_ > world_size) {
      throw std::invalid_argument(
          fmt::format("make_null_transport: rank {} of {}, {} of them on a machine", rank,
                      world_size, local_ranks_));
    }
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int local_ranks() const override {  // the last machine may have fewer
    const int first = rank_ / local_ranks_ * local_ranks_;
    return std::min(local_ranks_, world_size_ - first);
  }
  std::string_view name() const override {
    switch (as_) {
      case NullOptions::As::shared:
        return local_ranks_ == world_size_ ? "shared" : "mixed";
      case NullOptions::As::mpi:
        return "mpi";
      case NullOptions::As::threads:
        return "threads";
    }
    return "";
  }
  std::string description() const override { return fmt::format("dry run as {}", name()); }

  void bind(Backend& backend) override {
    if (backend.name() != "meta") {
      throw std::invalid_argument("the null transport moves nothing: it is for the meta backend");
    }
  }
  void set_timeout(std::chrono::milliseconds /*timeout*/) override {}

  Ticket send(int /*to*/, Signature /*signature*/, const Tensor& /*x*/) override { return next(); }
  Ticket receive(int /*from*/, Signature /*signature*/, const Tensor& /*out*/) override {
    return next();
  }
  Ticket read(int /*from*/, Signature /*signature*/, DType dtype, std::int64_t elements) override {
    const Ticket ticket = next();
    readings_.emplace(ticket, Tensor(dtype, Shape{elements}, peers_memory_));
    return ticket;
  }
  const Tensor& reading(Ticket ticket) override { return readings_.at(ticket); }
  void done_reading(Ticket ticket) override { readings_.erase(ticket); }

  bool takes_small(int peer) const override {
    return as_ == NullOptions::As::shared && on_this_machine(peer);
  }
  bool in_place(int peer) const override {
    return as_ == NullOptions::As::threads || takes_small(peer);
  }

  std::size_t wait_any(std::span<const Ticket> /*tickets*/) override {
    check_usable();
    return 0;
  }
  bool test(Ticket /*ticket*/) override {
    check_usable();
    return true;
  }

  Board& board() override { return board_; }
  std::vector<std::optional<Said>> statements(std::chrono::milliseconds /*patience*/) override {
    std::vector<std::optional<Said>> statements(static_cast<std::size_t>(world_size_));
    statements[static_cast<std::size_t>(rank_)] = Said{ringworld::read(board_), true};
    return statements;
  }

  void abandon() override { abandoned_ = true; }

 private:
  bool on_this_machine(int peer) const { return peer / local_ranks_ == rank_ / local_ranks_; }

  Ticket next() {
    check_usable();
    return next_ticket_++;
  }

  void check_usable() const {
    if (abandoned_.load(std::memory_order_relaxed)) {
      throw CommunicationError(fmt::format("rank {} ends its communication", rank_));
    }
  }

  const int rank_;
  const int world_size_;
  const NullOptions::As as_;
  const int local_ranks_;                              // of a whole machine
  const std::shared_ptr<const Storage> peers_memory_;  // nobody looks there
  std::unordered_map<Ticket, Tensor> readings_;
  Board board_{};
  Ticket next_ticket_ = 0;
  std::atomic<bool> abandoned_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_null_transport(int rank, int world_size,
                                               const NullOptions& options) {
  return std::make_unique<NullTransport>(rank, world_size, options);
}

}  // namespace ringworld
