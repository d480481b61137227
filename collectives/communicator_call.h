// What the files of the communicator share: one call, what ranks must agree on in it, and one
// rank's schedule for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/execute.h"

namespace ringworld {

// Calls up to here are over sooner than another thread would have begun them.
inline constexpr Bytes short_call{64 * 1024};

inline Tensor flat(const Tensor& tensor) {
  return tensor.defined() && tensor.shape().axes() != 1 ? tensor.view(Shape{tensor.elements()})
                                                        : tensor;
}

// Blocks side by side.
inline std::vector<Tensor> blocks_of(const Tensor& buffer,
                                     const std::vector<std::int64_t>& counts) {
  std::vector<Tensor> blocks;
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    blocks.push_back(buffer.slice(first, count));
    first += count;
  }
  return blocks;
}

// One word into a hash: a round of a multiply-rotate mixer.
inline std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

inline std::uint64_t mixed(std::uint64_t hash, std::string_view text) {
  hash = mixed(hash, text.size());
  for (std::size_t i = 0; i < text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
    hash = mixed(hash, word);
  }
  return hash;
}

// What ranks must agree on in a call, as it is told to others when they do not.
struct CallRecord {
  std::int64_t sequence = 0;  // counts its communicator's calls from 1; 0: no call
  std::int64_t elements = 0;  // of each rank's part, or of all blocks; 0: the ranks' own matter
  Signature signature = 0;
  std::int32_t root = 0;
  Operation operation = Operation::barrier;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  bool uneven = false;
  char algorithm[24] = {};  // cut, as is the label
  char label[48] = {};

  std::string describe() const;  // "all_reduce "gradients" (call 7: 12 elements of f32, sum, ring)"
};
static_assert(std::is_trivially_copyable_v<CallRecord> && sizeof(CallRecord) % 8 == 0);

// How a rank uses its board: the records of its last two calls, the one it is in or was in last
// and the one before, and in the last word how many it has begun and whether it is in one.
struct CallStatement {
  CallRecord current = {};   // sequence 0 when it is in no call
  CallRecord finished = {};  // the last one
};
void begin_call(Board& board, const CallRecord& record);
void end_call(Board& board);
CallStatement call_statement(const Statement& statement);

struct Communicator::Call {
  Operation operation;
  Tensor out;
  Tensor x;
  // Of the blocks of the whole, or of all_to_all's x and out; empty in a call for equal ones, until
  // set_equal_counts.
  Counts counts = {};
  Counts receive_counts = {};
  bool uneven = false;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::string label;
  const Algorithm* algorithm = nullptr;
  std::uint64_t algorithm_hash = 0;
  std::int64_t sequence = 0;  // counts this communicator's calls from 1

  DType dtype() const { return x.defined() ? x.dtype() : out.dtype(); }

  void set_equal_counts(int ranks) {
    const bool of_out = operation == Operation::reduce_scatter || operation == Operation::scatter;
    const std::int64_t block = operation == Operation::all_to_all ? x.elements() / ranks
                               : of_out                           ? out.elements()
                                                                  : x.elements();
    counts.assign(static_cast<std::size_t>(ranks), block);
    receive_counts = operation == Operation::all_to_all ? counts : Counts();
  }

  // The bytes of the operation's whole buffer, as Algorithm::elements_sent counts them.
  Bytes whole(int ranks) const {
    switch (operation) {
      case Operation::all_gather:
        return out.bytes();
      case Operation::gather:
        return ranks * x.bytes();
      case Operation::scatter:
        return ranks * out.bytes();
      default:
        return x.bytes();
    }
  }

  // Sum and avg of 16-bit formats run in f32.
  bool widens() const {
    return reduces(operation) && (op == ReduceOp::sum || op == ReduceOp::avg) &&
           (dtype() == DType::bf16 || dtype() == DType::f16);
  }

  // `group`: a hash of the communicator's ranks.
  CallRecord record(std::uint64_t group) const {
    CallRecord record;
    record.sequence = sequence;
    // What each rank sends and receives is its own in all_to_all with counts; the sizes of the
    // messages are held against each other then.
    const bool own = uneven && operation == Operation::all_to_all;
    record.elements = own ? 0 : operation == Operation::scatter ? out.elements() : x.elements();
    if (operation == Operation::all_gather && uneven) {
      record.elements = out.elements();
    }
    record.root = root;
    record.operation = operation;
    record.dtype = dtype();
    record.op = op;
    record.uneven = uneven;
    algorithm->name.copy(record.algorithm, sizeof record.algorithm - 1);
    label.copy(record.label, sizeof record.label - 1);
    Signature hash = mixed(group, static_cast<std::uint64_t>(sequence));
    hash = mixed(hash, static_cast<std::uint64_t>(record.elements));
    hash = mixed(hash, static_cast<std::uint64_t>(root) << 32 |
                           static_cast<std::uint64_t>(operation) << 24 |
                           static_cast<std::uint64_t>(dtype()) << 16 |
                           static_cast<std::uint64_t>(op) << 8 | (uneven ? 1u : 0u));
    hash = mixed(mixed(hash, algorithm_hash), label);
    if (uneven && !own) {
      for (const std::int64_t count : counts) {
        hash = mixed(hash, static_cast<std::uint64_t>(count));
      }
    }
    record.signature = hash ^ hash >> 32;
    return record;
  }
};

// What a communicator and its groups share: the order of their calls, and the memory for them.
struct Communicator::Line {
  explicit Line(Backend& backend, Bytes at_least) : scratch(backend, at_least) {}

  // What calls work in, one after the other.
  Scratch scratch;
  // What the stream was given last, as long as that may be under way.
  Work queued = {};
  // The small call that has been offered and not been collected yet, if there is one: before
  // anything else, it is.
  SmallCall* small = nullptr;
  std::map<std::string, Traffic> traffic = {};  // of finished calls, by label
  Stream stream;
};

// A rank's schedule, with which of its data chunks it names and writes.
struct Communicator::Plan {
  explicit Plan(Schedule schedule)
      : executor(std::move(schedule)),
        used(static_cast<std::size_t>(executor.schedule().data_chunks())),
        written(used.size()) {
    const auto mark = [](std::vector<bool>& chunks, int chunk) {
      if (chunk < static_cast<int>(chunks.size())) {
        chunks[static_cast<std::size_t>(chunk)] = true;
      }
    };
    for (const Step& step : executor.schedule().steps()) {
      for (const LocalAction& action : step.local) {
        mark(used, action.source);
        mark(used, action.chunk);
        mark(written, action.chunk);
      }
      for (const Action& action : step.actions) {
        mark(used, action.chunk);
        if (action.verb != Verb::send) {
          mark(written, action.chunk);
        }
      }
    }
  }

  bool writes_other_than(int chunk) const {
    for (int other = 0; other < static_cast<int>(written.size()); ++other) {
      if (other != chunk && written[static_cast<std::size_t>(other)]) {
        return true;
      }
    }
    return false;
  }

  Executor executor;
  std::vector<bool> used;
  std::vector<bool> written;
};

}  // namespace ringworld
