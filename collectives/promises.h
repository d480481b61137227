// What each operation gives and promises, in the terms of the proof. This is the only place where
// the proof knows one operation from another.
#pragma once

#include <optional>

#include "collectives/proof.h"
#include "collectives/schedule.h"

namespace ringworld {

// The data is cut into parts. A part is a data chunk, the same one on every rank; in all_to_all it
// is what one rank has for one other.
struct Promises {
  Operation operation;
  int ranks;
  int root;

  // The part that belongs into a rank's data chunk.
  int part(int rank, int chunk) const {
    if (operation != Operation::all_to_all) {
      return chunk;
    }
    return chunk < ranks ? rank * ranks + chunk : (chunk - ranks) * ranks + rank;
  }

  Contributors everyone() const { return ~Contributors() >> (max_proved_ranks - ranks); }

  // Who contributed to a rank's data chunk before the first step: the rank itself or nobody.
  bool given(int rank, int chunk) const {
    switch (operation) {
      case Operation::all_reduce:
      case Operation::reduce_scatter:
      case Operation::reduce:
      case Operation::barrier:
        return true;
      case Operation::all_gather:
      case Operation::gather:
        return chunk == rank;
      case Operation::broadcast:
      case Operation::scatter:
        return rank == root;
      case Operation::all_to_all:
        return chunk < ranks;
    }
    return false;
  }

  // Whose contributions it must hold after the last step; nothing where that does not matter. The
  // input of all_to_all is kept.
  std::optional<Contributors> promised(int rank, int chunk) const {
    switch (operation) {
      case Operation::all_reduce:
      case Operation::barrier:
        return everyone();
      case Operation::reduce_scatter:
        return chunk == rank ? std::optional(everyone()) : std::nullopt;
      case Operation::reduce:
        return rank == root ? std::optional(everyone()) : std::nullopt;
      case Operation::all_gather:
        return Contributors().set(chunk);
      case Operation::gather:
        return rank == root ? std::optional(Contributors().set(chunk)) : std::nullopt;
      case Operation::broadcast:
        return Contributors().set(root);
      case Operation::scatter:
        return chunk == rank ? std::optional(Contributors().set(root)) : std::nullopt;
      case Operation::all_to_all:
        return Contributors().set(chunk < ranks ? rank : chunk - ranks);
    }
    return std::nullopt;
  }

  // Whether hearing of a rank twice does no harm.
  bool idempotent() const { return operation == Operation::barrier; }
};

}  // namespace ringworld
