// What the files of the communicator share: one call, and one rank's schedule for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/communicator.h"

namespace ringworld {

inline Tensor flat(const Tensor& tensor) {
  return tensor.defined() ? tensor.view(Shape{tensor.elements()}) : tensor;
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

// FNV-1a (Fowler, Noll, Vo), 64 bits.
inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

struct Communicator::Call {
  std::string_view name;  // as the caller knows it
  Operation operation;
  Tensor out;
  Tensor x;
  Counts counts = {};          // of the blocks of the whole, or of all_to_all's x
  Counts receive_counts = {};  // of all_to_all's out
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::string label;
  const Algorithm* algorithm = nullptr;
  std::int64_t sequence = 0;  // counts this communicator's calls from 1
  std::string size = {};      // what ranks must agree on: "12 elements"

  DType dtype() const { return x.defined() ? x.dtype() : out.dtype(); }

  // Sum and avg of 16-bit formats run in f32.
  bool widens() const {
    return reduces(operation) && (op == ReduceOp::sum || op == ReduceOp::avg) &&
           (dtype() == DType::bf16 || dtype() == DType::f16);
  }

  // All that ranks must agree on.
  std::string describe() const {
    std::string text = fmt::format("{} \"{}\" (call {}: {} of {}", name, label, sequence, size,
                                   ringworld::name_of(dtype()));
    if (reduces(operation)) {
      text += fmt::format(", {}", ringworld::name_of(op));
    }
    if (has_root(operation)) {
      text += fmt::format(", root {}", root);
    }
    return text + ")";
  }

  Tag tag(const std::vector<int>& ranks) const {
    const std::uint64_t hash =
        hash_of(fmt::format("{} {} {}", describe(), algorithm->name, fmt::join(ranks, " ")));
    return static_cast<Tag>((hash ^ (hash >> 32)) % (max_tag + 1));
  }
};

// A rank's schedule, with which of its data chunks it names and writes.
struct Communicator::Plan {
  explicit Plan(Schedule emitted)
      : schedule(std::move(emitted)),
        used(schedule.data_chunks()),
        written(schedule.data_chunks()) {
    const auto mark = [](std::vector<bool>& chunks, int chunk) {
      if (chunk < static_cast<int>(chunks.size())) {
        chunks[static_cast<std::size_t>(chunk)] = true;
      }
    };
    for (const Step& step : schedule.steps()) {
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
    for (int other = 0; other < schedule.data_chunks(); ++other) {
      if (other != chunk && written[static_cast<std::size_t>(other)]) {
        return true;
      }
    }
    return false;
  }

  Schedule schedule;
  std::vector<bool> used;
  std::vector<bool> written;
};

}  // namespace ringworld
