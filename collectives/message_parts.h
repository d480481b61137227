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
  Tensor content;  // what is to be there before, if not in `tensor` yet
};

// Whether `next` lies right behind `last`.
inline bool follows(const Tensor& last, const Tensor& next) {
  return last.storage() == next.storage() &&
         last.first_element() + last.elements() == next.first_element();
}

inline Tensor joined(const Tensor& last, const Tensor& next) {
  return Tensor(next.dtype(), Shape{last.elements() + next.elements()}, next.storage(),
                last.first_element());
}

// Adds what comes next in the message; to the last part, where it lies right behind it.
inline void append(std::vector<MessagePart>& parts, Verb verb, const Tensor& next,
                   const Tensor& content) {
  if (next.elements() == 0) {
    return;
  }
  if (!parts.empty()) {
    MessagePart& last = parts.back();
    if (last.verb == verb && follows(last.tensor, next) && follows(last.content, content)) {
      last.tensor = joined(last.tensor, next);
      last.content = joined(last.content, content);
      return;
    }
  }
  parts.push_back({verb, next, content});
}

// The elements from `first` on, `count` of them, of a message in parts.
inline std::vector<MessagePart> cut(const std::vector<MessagePart>& parts, std::int64_t first,
                                    std::int64_t count) {
  std::vector<MessagePart> segment;
  for (const MessagePart& part : parts) {
    const std::int64_t begin = std::max<std::int64_t>(first, 0);
    const std::int64_t end = std::min(first + count, part.tensor.elements());
    if (begin < end) {
      segment.push_back({part.verb, part.tensor.slice(begin, end - begin),
                         part.content.slice(begin, end - begin)});
    }
    first -= part.tensor.elements();
  }
  return segment;
}

}  // namespace ringworld
