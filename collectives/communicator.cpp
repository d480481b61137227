#include "collectives/communicator.h"

#include <exception>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "collectives/execute.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

Tensor flat(const Tensor& tensor) {
  return tensor.view(Shape{tensor.elements()});
}

bool overlap(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.first_element() < b.first_element() + b.elements() &&
         b.first_element() < a.first_element() + a.elements();
}

// `whole` is made of `blocks` blocks of `part`'s size; where part lies within whole, if it does, it
// must be block `own`.
void check_blocks(std::string_view call, const Tensor& whole, const Tensor& part, int blocks,
                  int own) {
  if (whole.dtype() != part.dtype()) {
    throw std::invalid_argument(
        fmt::format("{}: {} and {} differ", call, name_of(whole.dtype()), name_of(part.dtype())));
  }
  if (whole.elements() != blocks * part.elements()) {
    throw std::invalid_argument(fmt::format("{}: {} elements are not {} times {}", call,
                                            whole.elements(), blocks, part.elements()));
  }
  if (overlap(whole, part) &&
      !flat(part).same_view(whole.slice(own * part.elements(), part.elements()))) {
    throw std::invalid_argument(
        fmt::format("{}: output and input overlap, but not in place", call));
  }
}

// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace

struct Communicator::Call {
  std::string_view name;  // as the caller knows it
  Operation operation;
  Tensor out;
  Tensor x;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::string label;
  std::int64_t sequence = 0;  // counts this communicator's calls from 1

  bool reduces() const {
    return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
  }

  // Sum and avg of 16-bit formats run in f32.
  bool widens() const {
    return reduces() && (op == ReduceOp::sum || op == ReduceOp::avg) &&
           (x.dtype() == DType::bf16 || x.dtype() == DType::f16);
  }

  // All that ranks must agree on.
  std::string describe() const {
    std::string text = fmt::format("{} \"{}\" (call {}: {} elements of {}", name, label, sequence,
                                   x.elements(), ringworld::name_of(x.dtype()));
    if (reduces()) {
      text += fmt::format(", {}", ringworld::name_of(op));
    }
    if (operation == Operation::broadcast) {
      text += fmt::format(", root {}", root);
    }
    return text + ")";
  }

  Tag tag() const {
    const std::uint64_t hash = hash_of(describe());
    return static_cast<Tag>((hash ^ (hash >> 32)) % (max_tag + 1));
  }
};

Communicator::Communicator(Transport& transport, Backend& backend, CommunicatorOptions options)
    : transport_(transport),
      backend_(backend),
      options_(std::move(options)),
      exceptions_(std::uncaught_exceptions()) {
  for (const Operation operation : all_operations) {
    find_algorithm(operation, options_.algorithm);
  }
  transport_.bind(backend_);
  transport_.set_timeout(options_.timeout);
}

Communicator::~Communicator() {
  if (std::uncaught_exceptions() > exceptions_) {
    transport_.abandon();
  }
}

Work Communicator::all_reduce(const Tensor& out, const Tensor& x, ReduceOp op, std::string label) {
  check_blocks("all_reduce", out, x, 1, 0);
  return submit({.name = "all_reduce",
                 .operation = Operation::all_reduce,
                 .out = out,
                 .x = x,
                 .op = op,
                 .label = std::move(label)});
}

Work Communicator::reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op,
                                  std::string label) {
  check_blocks("reduce_scatter", x, out, world_size(), rank());
  return submit({.name = "reduce_scatter",
                 .operation = Operation::reduce_scatter,
                 .out = out,
                 .x = x,
                 .op = op,
                 .label = std::move(label)});
}

Work Communicator::all_gather(const Tensor& out, const Tensor& x, std::string label) {
  check_blocks("all_gather", out, x, world_size(), rank());
  return submit({.name = "all_gather",
                 .operation = Operation::all_gather,
                 .out = out,
                 .x = x,
                 .label = std::move(label)});
}

Work Communicator::broadcast(const Tensor& x, int root, std::string label) {
  if (root < 0 || root >= world_size()) {
    throw std::invalid_argument(
        fmt::format("broadcast: root {} in a world of {} ranks", root, world_size()));
  }
  return submit({.name = "broadcast",
                 .operation = Operation::broadcast,
                 .out = x,
                 .x = x,
                 .root = root,
                 .label = std::move(label)});
}

// A rank has the sum only when every rank has contributed.
void Communicator::barrier(std::string label) {
  const Tensor token = backend_.zeros(DType::i32, Shape{1}, Category::communication);
  submit({.name = "barrier",
          .operation = Operation::all_reduce,
          .out = token,
          .x = token,
          .label = std::move(label)})
      .wait();
}

double Communicator::all_reduce_value(double value, ReduceOp op, std::string label) {
  const Tensor x = backend_.empty(DType::f64, Shape{1}, Category::communication);
  backend_.upload(x, std::as_bytes(std::span(&value, 1)));
  all_reduce(x, x, op, std::move(label)).wait();
  backend_.download(std::as_writable_bytes(std::span(&value, 1)), x);
  return value;
}

std::int64_t Communicator::all_reduce_value(std::int64_t value, ReduceOp op, std::string label) {
  const Tensor x = backend_.empty(DType::i64, Shape{1}, Category::communication);
  backend_.upload(x, std::as_bytes(std::span(&value, 1)));
  all_reduce(x, x, op, std::move(label)).wait();
  backend_.download(std::as_writable_bytes(std::span(&value, 1)), x);
  return value;
}

Traffic Communicator::traffic() const {
  Traffic total;
  for (const auto& [label, traffic] : traffic_) {
    total.calls += traffic.calls;
    total.bytes_sent += traffic.bytes_sent;
  }
  return total;
}

Work Communicator::submit(Call call) {
  call.out = flat(call.out);
  call.x = flat(call.x);
  call.sequence = ++sequence_;
  return stream_.submit([this, call = std::move(call)] { run(call); });
}

// On the communication stream. The schedule works in place on one buffer of all chunks: the output,
// or a working buffer where the output is smaller or narrower. Before it the buffer gets this
// rank's x, after it the output is taken from where the operation leaves it.
void Communicator::run(const Call& call) {
  const bool scatters = call.operation == Operation::reduce_scatter;
  const bool gathers = call.operation == Operation::all_gather;
  // The elements of a whole buffer that are this rank's output or input.
  const auto own = [&](const Tensor& buffer) {
    return scatters || gathers ? buffer.slice(rank() * (buffer.elements() / world_size()),
                                              buffer.elements() / world_size())
                               : buffer;
  };

  Tensor buffer = call.out;
  if (call.widens() && world_size() > 1) {
    buffer = backend_.empty(DType::f32, call.x.shape(), Category::communication);
    backend_.cast(buffer, call.x);
  } else if (scatters && call.out.same_view(own(call.x))) {
    buffer = call.x;
  } else if (scatters) {
    buffer = backend_.empty(call.x.dtype(), call.x.shape(), Category::communication);
    backend_.copy(buffer, call.x);
  } else if (const Tensor destination = gathers ? own(call.out) : call.out;
             !destination.same_view(call.x)) {
    backend_.copy(destination, call.x);
  }

  const Bytes bytes_sent = run_on_buffer(call, buffer);

  const Tensor result = scatters ? own(buffer) : buffer;
  if (call.reduces() && call.op == ReduceOp::avg && world_size() > 1) {
    backend_.divide(result, world_size());
  }
  if (result.dtype() != call.out.dtype()) {
    backend_.cast(call.out, result);
  } else if (!result.same_view(call.out)) {
    backend_.copy(call.out, result);
  }
  Traffic& traffic = traffic_[call.label];
  traffic.calls += 1;
  traffic.bytes_sent += bytes_sent;
}

Bytes Communicator::run_on_buffer(const Call& call, const Tensor& buffer) {
  try {
    return execute(schedule(call.operation, call.root), buffer, call.op, transport_, call.tag(),
                   options_.segment);
  } catch (const CommunicationError& error) {
    throw CommunicationError(fmt::format(
        "{} failed: {}. Every rank must make the same calls in the same order, with the same "
        "count, "
        "dtype, reduction, root and label: check what that rank calls here, whether it still runs, "
        "and whether the timeout of {} s is longer than a rank may be late",
        call.describe(), error.what(), static_cast<double>(options_.timeout.count()) / 1000));
  }
}

const Schedule& Communicator::schedule(Operation operation, int root) {
  std::unique_ptr<Schedule>& schedule = schedules_[{operation, root}];
  if (schedule == nullptr) {
    const Algorithm& algorithm = find_algorithm(operation, options_.algorithm);
    schedule = std::make_unique<Schedule>(algorithm.emit(rank(), world_size(), root));
  }
  return *schedule;
}

}  // namespace ringworld
