// The communicator's calls: what is asked, checked before anything is queued.
#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/communicator_call.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.first_element() < b.first_element() + b.elements() &&
         b.first_element() < a.first_element() + a.elements();
}

void check_dtypes(std::string_view call, const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) {
    throw std::invalid_argument(fmt::format("{}: a tensor is undefined", call));
  }
  if (a.dtype() != b.dtype()) {
    throw std::invalid_argument(
        fmt::format("{}: {} and {} differ", call, name_of(a.dtype()), name_of(b.dtype())));
  }
}

// `whole` is made of blocks of `counts`, of which `part` is as long as block `own`; where part lies
// within whole, if it does, it must be that block.
void check_blocks(std::string_view call, const Tensor& whole, const Tensor& part,
                  const std::vector<std::int64_t>& counts, int own) {
  check_dtypes(call, whole, part);
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t own_count = counts[static_cast<std::size_t>(own)];
  if (whole.elements() != sum || part.elements() != own_count) {
    throw std::invalid_argument(fmt::format(
        "{}: {} and {} elements do not fit blocks of {}, of which this rank's is number {}", call,
        whole.elements(), part.elements(), fmt::join(counts, ", "), own));
  }
  if (overlap(whole, part) &&
      !flat(part).same_view(blocks_of(flat(whole), counts)[static_cast<std::size_t>(own)])) {
    throw std::invalid_argument(
        fmt::format("{}: output and input overlap, but not in place", call));
  }
}

// As long as each other, and apart or the same.
void check_alike(std::string_view call, const Tensor& out, const Tensor& x) {
  if (!out.defined() || !x.defined() || out.elements() != x.elements() ||
      out.dtype() != x.dtype() ||
      (out.storage() == x.storage() && out.first_element() != x.first_element())) {
    check_blocks(call, out, x, {x.elements()}, 0);
  }
}

// `whole` is made of a block for each rank, all as long as `part`; else as check_blocks.
void check_even_blocks(std::string_view call, const Tensor& whole, const Tensor& part, int ranks,
                       int own) {
  const bool in_place = whole.storage() == part.storage();
  if (!whole.defined() || !part.defined() || whole.elements() != ranks * part.elements() ||
      whole.dtype() != part.dtype() ||
      (in_place && part.first_element() != whole.first_element() + own * part.elements())) {
    check_blocks(call, whole, part,
                 std::vector<std::int64_t>(static_cast<std::size_t>(ranks), part.elements()), own);
  }
}

void check_counts(std::string_view call, const std::vector<std::int64_t>& counts, int ranks) {
  if (static_cast<int>(counts.size()) != ranks ||
      std::ranges::any_of(counts, [](auto count) { return count < 0; })) {
    throw std::invalid_argument(
        fmt::format("{}: counts {} in a world of {} ranks", call, fmt::join(counts, ", "), ranks));
  }
}

bool all_equal(const std::vector<std::int64_t>& counts) {
  return std::ranges::count(counts, counts.front()) == static_cast<std::ptrdiff_t>(counts.size());
}

}  // namespace

void Communicator::check_root(std::string_view call, int root) const {
  if (root < 0 || root >= world_size()) {
    throw std::invalid_argument(
        fmt::format("{}: root {} in a world of {} ranks", call, root, world_size()));
  }
}

Work Communicator::all_reduce(const Tensor& out, const Tensor& x, ReduceOp op,
                              std::string_view label) {
  check_alike("all_reduce", out, x);
  return submit({.operation = Operation::all_reduce, .out = out, .x = x, .op = op, .label = label});
}

Work Communicator::reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op,
                                  std::string_view label) {
  check_even_blocks("reduce_scatter", x, out, world_size(), rank_);
  return submit(
      {.operation = Operation::reduce_scatter, .out = out, .x = x, .op = op, .label = label});
}

Work Communicator::reduce_scatter(const Tensor& out, const Tensor& x, const Counts& counts,
                                  ReduceOp op, std::string_view label) {
  check_counts("reduce_scatter", counts, world_size());
  check_blocks("reduce_scatter", x, out, counts, rank_);
  return submit({.operation = Operation::reduce_scatter,
                 .out = out,
                 .x = x,
                 .counts = counts,
                 .uneven = !all_equal(counts),
                 .op = op,
                 .label = label});
}

Work Communicator::all_gather(const Tensor& out, const Tensor& x, std::string_view label) {
  check_even_blocks("all_gather", out, x, world_size(), rank_);
  return submit({.operation = Operation::all_gather, .out = out, .x = x, .label = label});
}

Work Communicator::all_gather(const Tensor& out, const Tensor& x, const Counts& counts,
                              std::string_view label) {
  check_counts("all_gather", counts, world_size());
  check_blocks("all_gather", out, x, counts, rank_);
  return submit({.operation = Operation::all_gather,
                 .out = out,
                 .x = x,
                 .counts = counts,
                 .uneven = !all_equal(counts),
                 .label = label});
}

Work Communicator::broadcast(const Tensor& x, int root, std::string_view label) {
  check_root("broadcast", root);
  return submit(
      {.operation = Operation::broadcast, .out = x, .x = x, .root = root, .label = label});
}

Work Communicator::reduce(const Tensor& out, const Tensor& x, ReduceOp op, int root,
                          std::string_view label) {
  check_root("reduce", root);
  if (rank_ == root) {
    check_alike("reduce", out, x);
  }
  return submit({.operation = Operation::reduce,
                 .out = rank_ == root ? out : no_tensor,
                 .x = x,
                 .op = op,
                 .root = root,
                 .label = label});
}

Work Communicator::all_to_all(const Tensor& out, const Tensor& x, std::string_view label) {
  const std::int64_t block = x.elements() / world_size();
  check_dtypes("all_to_all", out, x);
  if (out.elements() != x.elements() || block * world_size() != x.elements() || overlap(out, x)) {
    throw std::invalid_argument(fmt::format("all_to_all: {} elements from {} over {} ranks{}",
                                            out.elements(), x.elements(), world_size(),
                                            overlap(out, x) ? ", in place" : ""));
  }
  return submit({.operation = Operation::all_to_all, .out = out, .x = x, .label = label});
}

Work Communicator::all_to_all(const Tensor& out, const Counts& receive_counts, const Tensor& x,
                              const Counts& send_counts, std::string_view label) {
  check_counts("all_to_all", receive_counts, world_size());
  check_counts("all_to_all", send_counts, world_size());
  check_dtypes("all_to_all", out, x);
  const auto sum = [](const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  const auto own = static_cast<std::size_t>(rank_);
  if (out.elements() != sum(receive_counts) || x.elements() != sum(send_counts) ||
      send_counts[own] != receive_counts[own] || overlap(out, x)) {
    throw std::invalid_argument(
        fmt::format("all_to_all: {} elements from blocks of {}, {} elements for blocks of {}{}",
                    x.elements(), fmt::join(send_counts, ", "), out.elements(),
                    fmt::join(receive_counts, ", "), overlap(out, x) ? ", in place" : ""));
  }
  if (const Algorithm& chosen = *choose(Operation::all_to_all, x.bytes(), false).algorithm;
      chosen.equal_chunks) {
    throw UsageError(fmt::format(
        "{} all_to_all needs equal counts; choose another algorithm for counts of their own",
        chosen.name));
  }
  return submit({.operation = Operation::all_to_all,
                 .out = out,
                 .x = x,
                 .counts = send_counts,
                 .receive_counts = receive_counts,
                 .uneven = true,
                 .label = label});
}

Work Communicator::gather(const Tensor& out, const Tensor& x, int root, std::string_view label) {
  check_root("gather", root);
  if (rank_ == root) {
    check_even_blocks("gather", out, x, world_size(), rank_);
  }
  return submit({.operation = Operation::gather,
                 .out = rank_ == root ? out : no_tensor,
                 .x = x,
                 .root = root,
                 .label = label});
}

Work Communicator::scatter(const Tensor& out, const Tensor& x, int root, std::string_view label) {
  check_root("scatter", root);
  if (rank_ == root) {
    check_even_blocks("scatter", x, out, world_size(), rank_);
  }
  return submit({.operation = Operation::scatter,
                 .out = out,
                 .x = rank_ == root ? x : no_tensor,
                 .root = root,
                 .label = label});
}

void Communicator::barrier(std::string_view label) {
  const Tensor token = backend_.zeros(DType::i32, Shape{1}, Category::communication);
  submit({.operation = Operation::barrier,
          .out = token,
          .x = token,
          .op = ReduceOp::max,
          .label = label})
      .wait();
}

double Communicator::all_reduce_value(double value, ReduceOp op, std::string_view label) {
  const Tensor x = backend_.empty(DType::f64, Shape{1}, Category::communication);
  backend_.upload(x, std::as_bytes(std::span(&value, 1)));
  all_reduce(x, x, op, label).wait();
  backend_.download(std::as_writable_bytes(std::span(&value, 1)), x);
  return value;
}

std::int64_t Communicator::all_reduce_value(std::int64_t value, ReduceOp op,
                                            std::string_view label) {
  const Tensor x = backend_.empty(DType::i64, Shape{1}, Category::communication);
  backend_.upload(x, std::as_bytes(std::span(&value, 1)));
  all_reduce(x, x, op, label).wait();
  backend_.download(std::as_writable_bytes(std::span(&value, 1)), x);
  return value;
}

const TrafficByLabel& Communicator::traffic_by_label() const {
  return line_->traffic;
}

Traffic Communicator::traffic() const {
  Traffic total;
  for (const auto& [label, traffic] : line_->traffic) {
    total.calls += traffic.calls;
    total.bytes_sent += traffic.bytes_sent;
  }
  return total;
}

}  // namespace ringworld
