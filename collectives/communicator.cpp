#include "collectives/communicator.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/capabilities.h"
#include "collectives/communicator_call.h"
#include "collectives/hierarchical.h"
#include "collectives/selection.h"
#include "collectives/small_call.h"
#include "runtime/error.h"
#include "runtime/library_collectives.h"

namespace ringworld {
namespace {

// Calls up to here are over sooner than another thread would have begun them.
constexpr Bytes short_call{64 * 1024};

std::uint64_t hash_of(const std::vector<int>& ranks) {
  std::uint64_t hash = 0;
  for (const int rank : ranks) {
    hash = mixed(hash, static_cast<std::uint64_t>(rank));
  }
  return hash;
}

}  // namespace

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
      group_(hash_of(ranks_)),
      reaches_small_(
          std::ranges::all_of(ranks_, [&](int member) { return transport_.takes_small(member); })),
      exceptions_(std::uncaught_exceptions()),
      line_(std::make_shared<Line>()) {
  for (const Operation operation : all_operations) {
    use_default(operation);
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
      group_(hash_of(ranks_)),
      reaches_small_(
          std::ranges::all_of(ranks_, [&](int member) { return transport_.takes_small(member); })),
      exceptions_(std::uncaught_exceptions()),
      line_(parent.line_) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (const auto& named = parent.choices_[i].named) {
      use_named(*named->algorithm);
    }
  }
}

Communicator::~Communicator() {
  if (std::uncaught_exceptions() > exceptions_) {
    transport_.abandon();
  }
  finish_small();
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
  if (algorithm == "auto") {
    choices_[static_cast<std::size_t>(operation)] = {};
  } else {
    use_named(find_or_compose(operation, algorithm));
  }
}

void Communicator::use_named(const Algorithm& algorithm) {
  choices_[static_cast<std::size_t>(algorithm.operation)] = {
      .named = Chosen{&checked(algorithm), mixed(0, algorithm.name)}};
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
  if (algorithm.library &&
      (transport_.library() == nullptr || world_size() != transport_.world_size())) {
    throw UsageError(
        fmt::format("{} {} is the MPI library's own call, over all ranks of an MPI job "
                    "only; choose another algorithm",
                    algorithm.name, name_of(algorithm.operation)));
  }
  return algorithm;
}

void Communicator::use_default(Operation operation) {
  if (const auto named = options_.algorithms.find(operation); named != options_.algorithms.end()) {
    use(operation, named->second);
    return;
  }
  const bool known = options_.algorithm == "auto" ||
                     std::ranges::any_of(algorithms(), [&](const Algorithm& algorithm) {
                       return algorithm.name == options_.algorithm;
                     });
  if (look_up(operation, options_.algorithm) != nullptr || !known) {
    use(operation, options_.algorithm);  // or throws
  }
}

const Communicator::Chosen& Communicator::choose(Operation operation, Bytes bytes,
                                                 bool equal_counts) {
  Choice& choice = choices_[static_cast<std::size_t>(operation)];
  if (choice.named) {
    return *choice.named;
  }
  const std::pair key(bytes.value, equal_counts);
  if (choice.last != nullptr && choice.last->first == key) {
    return choice.last->second;
  }
  auto found = choice.by_size.find(key);
  if (found == choice.by_size.end()) {
    const Selection& selection =
        options_.selection == nullptr ? Selection::built_in() : *options_.selection;
    const Selection::Choice chosen = selection.choose({.operation = operation,
                                                       .transport = transport_.name(),
                                                       .ranks = world_size(),
                                                       .bytes = bytes,
                                                       .equal_counts = equal_counts,
                                                       .reproducible = options_.reproducible});
    checked(*chosen.algorithm);
    found =
        choice.by_size.try_emplace(key, Chosen{chosen.algorithm, mixed(0, chosen.algorithm->name)})
            .first;
    explanations_.push_back(fmt::format("{} of {}: {}, by {}", name_of(operation), to_string(bytes),
                                        chosen.algorithm->name, chosen.reason));
  }
  choice.last = &*found;
  return found->second;
}

const Algorithm& Communicator::algorithm(Operation operation, Bytes bytes) {
  return *choose(operation, bytes, /*equal_counts=*/true).algorithm;
}

Bytes Communicator::expected_traffic(Operation operation, std::int64_t elements, DType dtype,
                                     bool equal_counts) {
  if (world_size() == 1) {
    return Bytes(0);
  }
  const Algorithm& serves = *choose(operation, elements * size_of(dtype), equal_counts).algorithm;
  return serves.elements_sent.value(world_size(), elements) * size_of(dtype);
}

// --- Queueing ------------------------------------------------------------------------------------

Work Communicator::submit(Call&& call) {
  finish_small();
  call.out = flat(call.out);
  call.x = flat(call.x);
  const Chosen& chosen = choose(call.operation, call.whole(world_size()),
                                /*equal_counts=*/!call.uneven);
  call.algorithm = chosen.algorithm;
  call.algorithm_hash = chosen.hash;
  if (chosen.algorithm->library) {
    if (const std::string why = refusal(*chosen.algorithm, call.dtype(), call.op); !why.empty()) {
      throw UsageError(fmt::format("{} {} of {}: {}", chosen.algorithm->name,
                                   name_of(call.operation), name_of(call.dtype()), why));
    }
  }
  call.sequence = ++sequence_;
  if (SmallCall::serves(*this, call) && line_->queued.done()) {
    line_->queued = {};
    if (spare_ == nullptr || spare_.use_count() > 1) {
      spare_ = std::make_shared<SmallCall>(*this);
    }
    line_->small = spare_.get();
    spare_->offer(std::move(call));
    return Work(spare_);
  }
  if (call.counts.empty()) {
    call.set_equal_counts(world_size());
  }
  const Bytes bytes = std::max(call.x.defined() ? call.x.bytes() : Bytes(0),
                               call.out.defined() ? call.out.bytes() : Bytes(0));
  const auto start = bytes <= short_call ? Stream::Start::when_waited_for : Stream::Start::now;
  last_ = line_->stream.submit([this, call = std::move(call)] { run(call); }, start);
  line_->queued = last_;
  return last_;
}

void Communicator::finish_small() {
  if (line_->small != nullptr) {
    line_->small->collect();
    line_->small = nullptr;
  }
}

// --- On the communication stream -----------------------------------------------------------------

void Communicator::run(const Call& call) {
  const CallRecord record = call.record(group_);
  begin_call(transport_.board(), record);
  const Outcome outcome = call.algorithm->library ? run_library(call, *transport_.library())
                                                  : run_schedule(call, record);
  if (call.out.defined() && outcome.result.defined()) {
    if (reduces(call.operation) && call.op == ReduceOp::avg && world_size() > 1) {
      backend_.divide(outcome.result, world_size());
    }
    fill(call.out, outcome.result);
  }
  end_call(transport_.board());
  count(call.label, outcome.bytes_sent.value);
}

void Communicator::fill(const Tensor& to, const Tensor& from) {
  if (to.dtype() != from.dtype()) {
    backend_.cast(to, from);
  } else if (!to.same_view(from)) {
    backend_.copy(to, from);
  }
}

// A schedule works on chunks. Where they lie is decided here: in the tensors of the call as far as
// possible, else in a working buffer, which then gets this rank's input first or gives its output
// last.
Communicator::Outcome Communicator::run_schedule(const Call& call, const CallRecord& record) {
  Plan& plan = this->plan(call);
  const auto own = static_cast<std::size_t>(rank_);
  const auto fresh = [&](DType dtype, std::int64_t elements) {
    return backend_.empty(dtype, Shape{elements}, Category::communication);
  };
  const bool widens = call.widens() && world_size() > 1;
  // x where the schedule may write.
  const auto working_copy = [&] {
    const Tensor buffer = fresh(widens ? DType::f32 : call.x.dtype(), call.x.elements());
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

  std::vector<Tensor> chunks;
  std::vector<Tensor> inputs;  // where the chunks' content is instead, if not there
  Tensor result;               // what becomes the output, unless it is there already
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
        if (!call.out.same_view(call.x)) {
          inputs = even_chunks(call.x, plan.executor.schedule().data_chunks());
        }
      } else {
        buffer = plan.writes_other_than(-1) ? working_copy() : call.x;
      }
      chunks = even_chunks(buffer, plan.executor.schedule().data_chunks());
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

  return {result, run_on_chunks(record, call.op, plan, chunks, inputs)};
}

void Communicator::count(const std::string& label, std::int64_t bytes_sent) {
  if (last_traffic_ == nullptr || last_traffic_->first != label) {
    last_traffic_ = &*line_->traffic.try_emplace(label).first;
  }
  last_traffic_->second.calls += 1;
  last_traffic_->second.bytes_sent += Bytes(bytes_sent);
}

// What it sends is the library's own business and is not counted.
Communicator::Outcome Communicator::run_library(const Call& call, LibraryCollectives& library) {
  const bool widens = call.widens() && world_size() > 1;
  const auto wide = [&](const Tensor& narrow) {
    return narrow.defined() && widens
               ? backend_.empty(DType::f32, Shape{narrow.elements()}, Category::communication)
               : narrow;
  };
  const Tensor x = wide(call.x);
  const Tensor out = wide(call.out);
  if (widens) {
    backend_.cast(x, call.x);
  }
  switch (call.operation) {
    case Operation::all_reduce:
      library.all_reduce(out, x, call.op);
      break;
    case Operation::reduce_scatter:
      library.reduce_scatter(out, x, call.counts, call.op);
      break;
    case Operation::all_gather:
      library.all_gather(out, x, call.counts);
      break;
    case Operation::broadcast:
      library.broadcast(x, call.root);
      break;
    case Operation::reduce:
      library.reduce(out, x, call.op, call.root);
      break;
    case Operation::all_to_all:
      if (call.uneven) {
        library.all_to_all(out, call.receive_counts, x, call.counts);
      } else {
        library.all_to_all(out, x);
      }
      break;
    case Operation::gather:
      library.gather(out, x, call.counts, call.root);
      break;
    case Operation::scatter:
      library.scatter(out, x, call.counts, call.root);
      break;
    case Operation::barrier:
      library.barrier();
      break;
  }
  return {reduces(call.operation) ? out : Tensor(), Bytes(0)};
}

Bytes Communicator::run_on_chunks(const CallRecord& record, ReduceOp op, Plan& plan,
                                  const std::vector<Tensor>& chunks,
                                  const std::vector<Tensor>& inputs) {
  try {
    return plan.executor.run(chunks, inputs, op, backend_,
                             {transport_, ranks_, record.signature, options_.segment});
  } catch (const CommunicationError& error) {
    throw CommunicationError(explain(record, error.what()));
  }
}

Communicator::Plan& Communicator::plan(const Call& call) {
  std::unique_ptr<Plan>& plan = plans_[{call.algorithm, call.root}];
  if (plan == nullptr) {
    plan = std::make_unique<Plan>(call.algorithm->emit(rank_, world_size(), call.root));
  }
  return *plan;
}

}  // namespace ringworld
