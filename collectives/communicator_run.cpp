// The communicator's calls when their turn on the communication stream has come.
#include <numeric>

#include "collectives/communicator_call.h"
#include "runtime/error.h"
#include "runtime/library_collectives.h"

namespace ringworld {

void Communicator::run(const Call& call) {
  const CallRecord record = call.record(call.signature(group_));
  begin_call(transport_.board(), record);
  const Bytes bytes_sent = run(call, record);
  line_->scratch.reset();
  end_call(transport_.board());
  count(call.label, bytes_sent.value);
}

Bytes Communicator::run(const Call& call, const CallRecord& record) {
  const Outcome outcome = call.algorithm->library ? run_library(call, *transport_.library())
                                                  : run_schedule(call, record);
  if (call.out.defined() && outcome.result.defined()) {
    if (reduces(call.operation) && call.op == ReduceOp::avg && world_size() > 1) {
      backend_.divide(outcome.result, world_size());
    }
    fill(call.out, outcome.result);
  }
  return outcome.bytes_sent;
}

void Communicator::fill(const Tensor& to, const Tensor& from) {
  if (to.dtype() != from.dtype()) {
    backend_.cast(to, from);
  } else if (!to.same_view(from)) {
    backend_.copy(to, from, to.bytes() >= passing_bytes);
  }
}

// A schedule works on chunks. Where they lie is decided here: in the tensors of the call as far as
// possible, else in a working buffer, which then gets this rank's input first or gives its output
// last.
Communicator::Outcome Communicator::run_schedule(const Call& call, const CallRecord& record) {
  Plan& plan = this->plan(call);
  const auto own = static_cast<std::size_t>(rank_);
  const auto fresh = [&](DType dtype, std::int64_t elements) {
    return line_->scratch.take(dtype, elements);
  };
  const bool widens = call.widens() && world_size() > 1;
  // x where the schedule may write.
  const auto working_copy = [&] {
    const Tensor buffer = fresh(widens ? DType::f32 : call.x.dtype(), call.x.elements());
    fill(buffer, call.x);
    return buffer;
  };
  // Blocks of which only those exist that the schedule names; this rank's is `mine` where it is the
  // only one, and else lies beside the others, with which it travels.
  const auto needed_blocks = [&](const Tensor& mine) {
    Counts counts = call.counts;
    bool alone = true;
    for (std::size_t block = 0; block < counts.size(); ++block) {
      counts[block] = plan.used[block] || block == own ? counts[block] : 0;
      alone = alone && (block == own || counts[block] == 0);
    }
    if (alone) {
      std::vector<Tensor> blocks(counts.size(), mine.slice(0, 0));
      blocks[own] = mine;
      return blocks;
    }
    return blocks_of(
        fresh(mine.dtype(), std::accumulate(counts.begin(), counts.end(), std::int64_t{0})),
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
        inputs.resize(chunks.size());
        inputs[own] = blocks[own];
      } else {
        chunks = blocks_of(working_copy(), call.counts);
      }
      result = chunks[own];
      break;
    }
    case Operation::all_gather:
      chunks = blocks_of(call.out, call.counts);
      if (!chunks[own].same_view(call.x)) {  // the others read x, and need not wait for its copy
        inputs.resize(chunks.size());
        inputs[own] = call.x;
      }
      break;
    case Operation::all_to_all: {
      chunks = blocks_of(call.x, call.counts);
      const std::vector<Tensor> received = blocks_of(call.out, call.receive_counts);
      chunks.insert(chunks.end(), received.begin(), received.end());
      break;
    }
    case Operation::gather:
      chunks = is_root ? blocks_of(call.out, call.counts) : needed_blocks(call.x);
      fill(chunks[own], call.x);
      break;
    case Operation::scatter:
      chunks = is_root ? blocks_of(call.x, call.counts) : needed_blocks(call.out);
      result = chunks[own];
      break;
  }

  return {result, run_on_chunks(record, call.op, plan, chunks, inputs)};
}

Traffic& Communicator::traffic_of(std::string_view label) {
  if (last_traffic_ == nullptr || last_traffic_->first != label) {
    auto found = line_->traffic.find(label);
    if (found == line_->traffic.end()) {
      found = line_->traffic.try_emplace(std::string(label)).first;
    }
    last_traffic_ = &*found;
  }
  return last_traffic_->second;
}

void Communicator::count(std::string_view label, std::int64_t bytes_sent) {
  Traffic& traffic = traffic_of(label);
  traffic.calls += 1;
  traffic.bytes_sent += Bytes(bytes_sent);
}

// What it sends is the library's own business and is not counted.
Communicator::Outcome Communicator::run_library(const Call& call, LibraryCollectives& library) {
  const bool widens = call.widens();  // on one rank, too: the library has no such sums
  const auto wide = [&](const Tensor& narrow) {
    return narrow.defined() && widens ? line_->scratch.take(DType::f32, narrow.elements()) : narrow;
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
    return plan.executor.run(chunks, inputs, op, backend_, line_->scratch,
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
