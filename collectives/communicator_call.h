// What the files of the communicator share: one call, what ranks must agree on in it, and one
// rank's schedule for it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
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

// Characters 8 * index to 8 * index + 7 of a text, the first one lowest; zeros behind its end. From
// whole words: what is put together from single bytes in memory cannot be read as a word before all
// that was written before it, another rank's message included, has left for the caches.
inline std::uint64_t text_word(std::string_view text, std::size_t index) {
  const auto loaded = [](const char* from, auto word) {
    std::memcpy(&word, from, sizeof word);
    return std::uint64_t{word};
  };
  const std::size_t first = 8 * index;
  if (first >= text.size()) {
    return 0;
  }
  const char* at = text.data() + first;
  const std::size_t length = text.size() - first;
  if (length >= 8) {
    return loaded(at, std::uint64_t{});
  }
  if (length >= 4) {
    return loaded(at, std::uint32_t{}) | loaded(at + length - 4, std::uint32_t{})
                                             << 8 * (length - 4);
  }
  return loaded(at, std::uint8_t{}) | loaded(at + length / 2, std::uint8_t{}) << 8 * (length / 2) |
         loaded(at + length - 1, std::uint8_t{}) << 8 * (length - 1);
}

inline std::uint64_t mixed(std::uint64_t hash, std::string_view text) {
  hash = mixed(hash, text.size());
  for (std::size_t word = 0; 8 * word < text.size(); ++word) {
    hash = mixed(hash, text_word(text, word));
  }
  return hash;
}

// The first 8 * N characters of a text.
template <std::size_t N>
class CutText {
 public:
  static constexpr std::size_t length = N;  // in words

  CutText() = default;
  explicit CutText(std::string_view text) {
    for (std::size_t word = 0; word < N; ++word) {
      words_[word] = text_word(text, word);
    }
  }
  explicit CutText(const std::uint64_t* words) { std::copy_n(words, N, words_.begin()); }
  const std::array<std::uint64_t, N>& words() const { return words_; }
  std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < 8 * N && (words_[i / 8] >> i % 8 * 8 & 0xff) != 0; ++i) {
      text += static_cast<char>(words_[i / 8] >> i % 8 * 8);
    }
    return text;
  }

 private:
  std::array<std::uint64_t, N> words_{};
};

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
  CutText<3> algorithm;
  CutText<6> label;

  std::string describe() const;  // "all_reduce "gradients" (call 7: 12 elements of f32, sum, ring)"
};

// Some of it as one word.
inline std::uint64_t terms_word(std::int32_t root, Operation operation, DType dtype, ReduceOp op,
                                bool uneven) {
  return std::uint64_t{static_cast<std::uint32_t>(root)} << 32 |
         static_cast<std::uint64_t>(operation) << 24 | static_cast<std::uint64_t>(dtype) << 16 |
         static_cast<std::uint64_t>(op) << 8 | (uneven ? 1u : 0u);
}

// How a rank uses its board: the records of its last two calls, the one it is in or was in last
// and the one before, and in the last word how many it has begun and whether it is in one.
struct CallStatement {
  CallRecord current = {};   // sequence 0 when it is in no call
  CallRecord finished = {};  // the last one
};
void begin_call(Board& board, const CallRecord& record);
void end_call(Board& board);
CallStatement call_statement(const Statement& statement);

// One call: as it is asked for (Asked: what the caller has, by reference), or as it is kept until
// its turn has come (Call).
template <class TensorT, class CountsT, class Text>
struct Communicator::CallOf {
  Operation operation;
  TensorT out = no_tensor;
  TensorT x = no_tensor;
  // Of the blocks of the whole, or of all_to_all's x and out; empty in a call for equal ones, until
  // it is kept.
  CountsT counts = no_counts;
  CountsT receive_counts = no_counts;
  bool uneven = false;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  Text label;
  const Algorithm* algorithm = nullptr;
  std::uint64_t algorithm_hash = 0;
  std::int64_t sequence = 0;  // counts this communicator's calls from 1

  DType dtype() const { return x.defined() ? x.dtype() : out.dtype(); }

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

  // What each rank sends and receives is its own in all_to_all with counts; the sizes of the
  // messages are held against each other then.
  bool own_counts() const { return uneven && operation == Operation::all_to_all; }

  // CallRecord::elements.
  std::int64_t agreed_elements() const {
    if (own_counts()) {
      return 0;
    }
    return operation == Operation::scatter || (operation == Operation::all_gather && uneven)
               ? out.elements()
               : x.elements();
  }

  // `group`: a hash of the communicator's ranks.
  Signature signature(std::uint64_t group) const {
    const std::uint64_t place = mixed(mixed(group, static_cast<std::uint64_t>(sequence)),
                                      static_cast<std::uint64_t>(agreed_elements()));
    std::uint64_t terms =
        mixed(mixed(algorithm_hash, terms_word(root, operation, dtype(), op, uneven)), label);
    if (uneven && !own_counts()) {
      for (const std::int64_t count : counts) {
        terms = mixed(terms, static_cast<std::uint64_t>(count));
      }
    }
    const Signature hash = mixed(place, terms);
    return hash ^ hash >> 32;
  }

  // `signature`: this call's.
  CallRecord record(Signature signature) const {
    return {.sequence = sequence,
            .elements = agreed_elements(),
            .signature = signature,
            .root = root,
            .operation = operation,
            .dtype = dtype(),
            .op = op,
            .uneven = uneven,
            .algorithm = CutText<3>(algorithm->name),
            .label = CutText<6>(label)};
  }

  // This call with all that belongs to it, its tensors as one axis.
  Call kept(int ranks) const {
    Call call{.operation = operation,
              .out = flat(out),
              .x = flat(x),
              .counts = counts,
              .receive_counts = receive_counts,
              .uneven = uneven,
              .op = op,
              .root = root,
              .label = std::string(label),
              .algorithm = algorithm,
              .algorithm_hash = algorithm_hash,
              .sequence = sequence};
    if (counts.empty()) {
      const bool of_out = operation == Operation::reduce_scatter || operation == Operation::scatter;
      const std::int64_t block = operation == Operation::all_to_all ? x.elements() / ranks
                                 : of_out                           ? out.elements()
                                                                    : x.elements();
      call.counts.assign(static_cast<std::size_t>(ranks), block);
      call.receive_counts = operation == Operation::all_to_all ? call.counts : Counts();
    }
    return call;
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
  // Why a small call failed: as on the stream, all calls after it fail with that.
  std::exception_ptr failure = nullptr;
  TrafficByLabel traffic = {};  // of finished calls, by label
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
