// A device's ledger without a device: what is held and was held at most.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "runtime/device.h"

namespace ringworld {

// Memory for as long as anybody has this: a tensor without a tensor. Two that are equal are the
// same memory; null is none.
using Held = std::shared_ptr<const void>;

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
  // Given back with the last copy of the result, which must not outlive the books.
  Held hold(Category category, std::int64_t bytes) {
    take(category, bytes);
    return std::make_shared<const Loan>(*this, category, bytes);
  }
  const Ledger& ledger() const { return ledger_; }

 private:
  struct Loan {
    Loan(Books& of, Category in, std::int64_t size) : books(of), category(in), bytes(size) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { books.give(category, bytes); }
    Books& books;
    const Category category;
    const std::int64_t bytes;
  };

  Ledger ledger_;
};

}  // namespace ringworld
