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

namespace ringworld {
namespace {

// What calls that may be small ones need of scratch. How much that is depends on whether they meet
// the stream busy and run their schedule, one_shot with a place for each rank at worst: so it is
// there from the beginning.
Bytes scratch_of_small_calls(const Transport& transport) {
  int reached = 0;
  for (int peer = 0; peer < transport.world_size(); ++peer) {
    reached += peer != transport.rank() && transport.takes_small(peer) ? 1 : 0;
  }
  return (reached == 0 ? 0 : reached + 1) * Transport::small_message;
}

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
      messages_(ranks_.size()),
      line_(std::make_shared<Line>(backend_, scratch_of_small_calls(transport_))) {
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
      messages_(ranks_.size()),
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
  std::vector<bool> is_member(ranks_.size());
  int own = -1;
  for (const int member : ranks) {
    if (member < 0 || member >= world_size() || is_member[static_cast<std::size_t>(member)]) {
      throw std::invalid_argument(
          fmt::format("subgroup: ranks {} of a world of {}", fmt::join(ranks, ", "), world_size()));
    }
    is_member[static_cast<std::size_t>(member)] = true;
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
    explanations_[{operation, bytes.value, equal_counts}] =
        fmt::format("{} of {}: {}, by {}", name_of(operation), to_string(bytes),
                    chosen.algorithm->name, chosen.reason);
  }
  choice.last = &*found;
  return found->second;
}

std::vector<std::string> Communicator::explanations() const {
  std::vector<std::string> lines;
  for (const auto& [call, line] : explanations_) {
    lines.push_back(line);
  }
  return lines;
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

Work Communicator::submit(Asked asked) {
  begin();
  const Chosen& chosen = choose(asked.operation, asked.whole(world_size()),
                                /*equal_counts=*/!asked.uneven);
  asked.algorithm = chosen.algorithm;
  asked.algorithm_hash = chosen.hash;
  if (chosen.algorithm->library) {
    if (const std::string why = refusal(*chosen.algorithm, asked.dtype(), asked.op); !why.empty()) {
      throw UsageError(fmt::format("{} {} of {}: {}", chosen.algorithm->name,
                                   name_of(asked.operation), name_of(asked.dtype()), why));
    }
  }
  asked.sequence = ++sequence_;
  if (SmallCall::serves(*this, asked) && line_->queued.done()) {
    line_->queued.wait();  // throws what failed there, as the stream would
    line_->queued = {};
    if (small_ == nullptr) {
      small_ = std::make_unique<SmallCall>(*this);
    }
    line_->small = small_.get();
    return small_->offer(asked);
  }
  Call call = asked.kept(world_size());
  const Bytes bytes = std::max(call.x.defined() ? call.x.bytes() : Bytes(0),
                               call.out.defined() ? call.out.bytes() : Bytes(0));
  const auto start = bytes <= short_call ? Stream::Start::when_waited_for : Stream::Start::now;
  last_ = line_->stream.submit([this, call = std::move(call)] { run(call); }, start);
  line_->queued = last_;
  return last_;
}

void Communicator::begin() {
  finish_small();
  if (line_->failure != nullptr) {
    std::rethrow_exception(line_->failure);
  }
}

void Communicator::finish_small() {
  if (line_->small != nullptr) {
    line_->small->collect();
    line_->small = nullptr;
  }
}

}  // namespace ringworld
