#include "collectives/communicator.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/communicator_call.h"
#include "collectives/execute.h"
#include "runtime/error.h"

namespace ringworld {

// --- Making one ----------------------------------------------------------------------------------

Communicator::Communicator(Transport& transport, Backend& backend, CommunicatorOptions options)
    : transport_(transport),
      backend_(backend),
      options_(std::move(options)),
      ranks_([&] {
        std::vector<int> all(static_cast<std::size_t>(transport.world_size()));
        std::iota(all.begin(), all.end(), 0);
        return all;
      }()),
      rank_(transport.rank()),
      exceptions_(std::uncaught_exceptions()),
      stream_(std::make_shared<Stream>()) {
  for (const Operation operation : all_operations) {
    chosen_[operation] = &default_algorithm(operation);
  }
  transport_.bind(backend_);
  transport_.set_timeout(options_.timeout);
}

Communicator::Communicator(const Communicator& parent, std::vector<int> ranks, int rank)
    : transport_(parent.transport_),
      backend_(parent.backend_),
      options_(parent.options_),
      ranks_(std::move(ranks)),
      rank_(rank),
      exceptions_(std::uncaught_exceptions()),
      chosen_(parent.chosen_),
      stream_(parent.stream_) {
  for (const auto& [operation, algorithm] : chosen_) {
    checked(*algorithm);
  }
}

Communicator::~Communicator() {
  if (std::uncaught_exceptions() > exceptions_) {
    transport_.abandon();
  }
  try {
    last_.wait();
  } catch (...) {  // reported by the Work that its caller has
  }
}

std::unique_ptr<Communicator> Communicator::subgroup(const std::vector<int>& ranks) {
  std::vector<int> transport_ranks;
  int own = -1;
  for (const int member : ranks) {
    if (member < 0 || member >= world_size() || std::ranges::count(ranks, member) > 1) {
      throw std::invalid_argument(
          fmt::format("subgroup: ranks {} of a world of {}", fmt::join(ranks, ", "), world_size()));
    }
    if (member == rank_) {
      own = static_cast<int>(transport_ranks.size());
    }
    transport_ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
  }
  if (own < 0) {
    throw std::invalid_argument(
        fmt::format("subgroup: rank {} is none of the ranks {}", rank_, fmt::join(ranks, ", ")));
  }
  return std::unique_ptr<Communicator>(new Communicator(*this, std::move(transport_ranks), own));
}

// --- Which algorithm -----------------------------------------------------------------------------

void Communicator::use(Operation operation, std::string_view algorithm) {
  chosen_[operation] = &checked(find_algorithm(operation, algorithm));
}

const Algorithm& Communicator::checked(const Algorithm& algorithm) const {
  if (const std::string reason = algorithm.refuses(world_size()); !reason.empty()) {
    throw UsageError(fmt::format("{} {} cannot serve {} ranks: {}", algorithm.name,
                                 name_of(algorithm.operation), world_size(), reason));
  }
  if (options_.reproducible && reduces(algorithm.operation) && !algorithm.rank_order) {
    throw UsageError(fmt::format(
        "{} {} does not add in the order of the ranks, as reproducible communication demands",
        algorithm.name, name_of(algorithm.operation)));
  }
  return algorithm;
}

const Algorithm& Communicator::default_algorithm(Operation operation) const {
  if (const auto named = options_.algorithms.find(operation); named != options_.algorithms.end()) {
    return checked(find_algorithm(operation, named->second));
  }
  if (options_.reproducible && reduces(operation)) {
    return *std::ranges::find_if(algorithms(), [&](const Algorithm& algorithm) {
      return algorithm.operation == operation && algorithm.rank_order;
    });
  }
  const bool known = std::ranges::any_of(algorithms(), [&](const Algorithm& algorithm) {
    return algorithm.name == options_.algorithm;
  });
  if (!known) {
    find_algorithm(operation, options_.algorithm);  // throws
  }
  if (const Algorithm* algorithm = look_up(operation, options_.algorithm)) {
    return checked(*algorithm);
  }
  return find_algorithm(operation, algorithm_names(operation).front());
}

// --- Queueing
// --------------------------------------------------------------------------------------

Work Communicator::submit(Call call) {
  call.out = flat(call.out);
  call.x = flat(call.x);
  call.algorithm = &algorithm(call.operation);
  call.sequence = ++sequence_;
  last_ = stream_->submit([this, call = std::move(call)] { run(call); });
  return last_;
}

// --- On the communication stream -----------------------------------------------------------------

// A schedule works on chunks. Where they lie is decided here: in the tensors of the call as far as
// possible, else in a working buffer, which then gets this rank's input first or gives its output
// last.
void Communicator::run(const Call& call) {
  const Plan& plan = this->plan(call);
  const auto own = static_cast<std::size_t>(rank_);
  const auto fresh = [&](DType dtype, std::int64_t elements) {
    return backend_.empty(dtype, Shape{elements}, Category::communication);
  };
  const auto fill = [&](const Tensor& to, const Tensor& from) {
    if (to.dtype() != from.dtype()) {
      backend_.cast(to, from);
    } else if (!to.same_view(from)) {
      backend_.copy(to, from);
    }
  };
  // x where the schedule may write.
  const auto working_copy = [&] {
    const Tensor buffer =
        fresh(call.widens() && world_size() > 1 ? DType::f32 : call.x.dtype(), call.x.elements());
    fill(buffer, call.x);
    return buffer;
  };
  // Blocks of which only those exist that the schedule names.
  const auto needed_blocks = [&](DType dtype) {
    Counts counts = call.counts;
    for (std::size_t block = 0; block < counts.size(); ++block) {
      counts[block] = plan.used[block] || block == own ? counts[block] : 0;
    }
    return blocks_of(fresh(dtype, std::accumulate(counts.begin(), counts.end(), std::int64_t{0})),
                     counts);
  };
  const bool is_root = rank_ == call.root;
  const bool widens = call.widens() && world_size() > 1;

  std::vector<Tensor> chunks;
  Tensor result;  // what becomes the output, unless it is there already
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::broadcast:
    case Operation::barrier:
    case Operation::reduce: {
      Tensor buffer;
      if (widens) {
        buffer = working_copy();
      } else if (call.out.defined()) {
        buffer = call.out;
        fill(buffer, call.x);
      } else {
        buffer = plan.writes_other_than(-1) ? working_copy() : call.x;
      }
      chunks = even_chunks(buffer, plan.schedule.data_chunks());
      result = buffer;
      break;
    }
    case Operation::reduce_scatter: {
      const std::vector<Tensor> blocks = blocks_of(call.x, call.counts);
      if (widens) {
        chunks = blocks_of(working_copy(), call.counts);
      } else if (call.out.same_view(blocks[own])) {
        chunks = blocks;
      } else if (!plan.writes_other_than(rank_)) {
        chunks = blocks;
        chunks[own] = call.out;
        fill(call.out, blocks[own]);
      } else {
        chunks = blocks_of(working_copy(), call.counts);
      }
      result = chunks[own];
      break;
    }
    case Operation::all_gather:
      chunks = blocks_of(call.out, call.counts);
      fill(chunks[own], call.x);
      break;
    case Operation::all_to_all: {
      chunks = blocks_of(call.x, call.counts);
      const std::vector<Tensor> received = blocks_of(call.out, call.receive_counts);
      chunks.insert(chunks.end(), received.begin(), received.end());
      break;
    }
    case Operation::gather:
      chunks = is_root ? blocks_of(call.out, call.counts) : needed_blocks(call.x.dtype());
      fill(chunks[own], call.x);
      break;
    case Operation::scatter:
      chunks = is_root ? blocks_of(call.x, call.counts) : needed_blocks(call.out.dtype());
      result = chunks[own];
      break;
  }

  const Bytes bytes_sent = run_on_chunks(call, plan, chunks);

  if (call.out.defined() && result.defined()) {
    if (reduces(call.operation) && call.op == ReduceOp::avg && world_size() > 1) {
      backend_.divide(result, world_size());
    }
    fill(call.out, result);
  }
  Traffic& traffic = traffic_[call.label];
  traffic.calls += 1;
  traffic.bytes_sent += bytes_sent;
}

Bytes Communicator::run_on_chunks(const Call& call, const Plan& plan,
                                  const std::vector<Tensor>& chunks) {
  try {
    return execute(plan.schedule, chunks, call.op, backend_,
                   {transport_, ranks_, call.tag(ranks_), options_.segment});
  } catch (const CommunicationError& error) {
    throw CommunicationError(fmt::format(
        "{} failed: {}. Every rank must make the same calls in the same order, with the same "
        "count, dtype, reduction, root and label: check what that rank calls here, whether it "
        "still runs, and whether the timeout of {} s is longer than a rank may be late",
        call.describe(), error.what(), static_cast<double>(options_.timeout.count()) / 1000));
  }
}

const Communicator::Plan& Communicator::plan(const Call& call) {
  std::unique_ptr<Plan>& plan = plans_[{call.algorithm, call.root}];
  if (plan == nullptr) {
    plan = std::make_unique<Plan>(call.algorithm->emit(rank_, world_size(), call.root));
  }
  return *plan;
}

}  // namespace ringworld
