// A message between the chunks that it joins on one rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collectives/schedule.h"
#include "runtime/tensor.h"

namespace ringworld {

// Elements side by side, and what is done with them.
struct MessagePart {
  Verb verb;
  Tensor tensor;
};

// Adds what comes next in the message; to the last part, where it lies right behind it.
inline void append(std::vector<MessagePart>& parts, Verb verb, const Tensor& next) {
  if (next.elements() == 0) {
    return;
  }
  if (!parts.empty()) {
    MessagePart& last = parts.back();
    if (last.verb == verb && last.tensor.storage() == next.storage() &&
        last.tensor.first_element() + last.tensor.elements() == next.first_element()) {
      last.tensor = Tensor(next.dtype(), Shape{last.tensor.elements() + next.elements()},
                           next.storage(), last.tensor.first_element());
      return;
    }
  }
  parts.push_back({verb, next});
}

// The elements from `first` on, `count` of them, of a message in parts.
inline std::vector<MessagePart> cut(const std::vector<MessagePart>& parts, std::int64_t first,
                                    std::int64_t count) {
  std::vector<MessagePart> segment;
  for (const MessagePart& part : parts) {
    const std::int64_t begin = std::max<std::int64_t>(first, 0);
    const std::int64_t end = std::min(first + count, part.tensor.elements());
    if (begin < end) {
      segment.push_back({part.verb, part.tensor.slice(begin, end - begin)});
    }
    first -= part.tensor.elements();
  }
  return segment;
}

}  // namespace ringworld
