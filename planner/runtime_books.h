// A device's ledger without a device: what is held and was held at most.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/device.h"

namespace ringworld {

class Books {
 public:
  void take(Category category, std::int64_t bytes) {
    const auto c = static_cast<std::size_t>(category);
    ledger_.held[c] += Bytes(bytes);
    ledger_.total_held += Bytes(bytes);
    ledger_.peak[c] = std::max(ledger_.peak[c], ledger_.held[c]);
    ledger_.total_peak = std::max(ledger_.total_peak, ledger_.total_held);
  }
  void give(Category category, std::int64_t bytes) {
    ledger_.held[static_cast<std::size_t>(category)] -= Bytes(bytes);
    ledger_.total_held -= Bytes(bytes);
  }
  // Taken and given back at once.
  void touch(Category category, std::int64_t bytes) {
    take(category, bytes);
    give(category, bytes);
  }
  const Ledger& ledger() const { return ledger_; }

 private:
  Ledger ledger_;
};

}  // namespace ringworld
