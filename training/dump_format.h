// A dump: what every rank had in one optimizer step, as files in a directory. Rank 3 writes
// rank-0003.bin, the tensors' bytes one after the other, and rank-0003.json, which says what they
// are. The index appears last, under its name only when it is whole.
//
// Outputs of forward and gradients between units are stored with the position of their sequences in
// the run, so that dumps of other world sizes, micro-batches and strategies can be matched.
// Gradients and parameters are whole: rank 0 writes them, and any other rank only where its own
// copy has other bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/dtype.h"

namespace ringworld {

// In the order in which one follows from another: every forward of a step comes before any gradient
// depends on it.
enum class DumpKind : std::uint8_t { forward, loss, backward, gradient, norm, parameter };
std::string_view name_of(DumpKind kind);  // "forward", ...

// One tensor of one rank.
struct DumpEntry {
  std::int64_t order = 0;  // in which the rank wrote it, from 0
  DumpKind kind = DumpKind::forward;
  std::string name = {};  // of the unit, or of the parameter; of loss and norm the kind's
  std::string unit = {};  // that it belongs to, of a parameter the first that uses it; else empty
  std::int64_t position = 0;  // of the unit in the chain, or of the parameter in the model
  // Sequences [first_sequence, first_sequence + sequences) of the run, each an equal part of the
  // elements. 0: it is of no sequences.
  std::int64_t first_sequence = 0;
  std::int64_t sequences = 0;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape = {};  // empty: one element
  std::int64_t offset = 0;               // in the rank's file of bytes
  std::int64_t bytes = 0;

  std::int64_t elements() const { return bytes / size_of(dtype).value; }
};
// "output of h.0", "gradient passed down by h.0", "gradient of h.0.ln_1.weight", "parameter ...".
std::string describe(DumpKind kind, std::string_view name);

// The elements of a parameter that a rank updates.
struct DumpShard {
  std::string parameter;
  std::int64_t first_element = 0;
  std::int64_t elements = 0;
};

// What one rank's JSON file holds: schema "ringworld.dump".
struct DumpIndex {
  int rank = 0;
  int world_size = 1;
  std::int64_t step = 0;  // from 1
  std::string strategy;
  std::string model;
  std::int64_t parameters = 0;  // elements of the model's
  DType precision = DType::f32;
  double loss_scale = 1;  // what gradients, whole and between units, are multiplied with
  std::vector<DumpShard> shards;
  std::vector<DumpEntry> entries;
};
nlohmann::ordered_json json_of(const DumpIndex& index);

// "DIRECTORY/rank-0003.json"; the suffix is "json" or "bin".
std::string dump_path(const std::string& directory, int rank, std::string_view suffix);
// Whether the directory holds files of a dump, of any rank.
bool holds_dump(const std::string& directory);

// A dump that was read back: every rank's index, and the values when they are asked for.
class Dump {
 public:
  // Throws DataError, naming the file, when there is no dump, a rank's file is missing, damaged or
  // cut off, or they are not of one and the same step.
  explicit Dump(std::string directory);

  const std::string& directory() const { return directory_; }
  const std::vector<DumpIndex>& ranks() const { return ranks_; }  // by rank
  const DumpIndex& front() const { return ranks_.front(); }       // for what is the same in all
  // `count` elements of an entry of `rank`, from `first`, as doubles.
  std::vector<double> read(int rank, const DumpEntry& entry, std::int64_t first,
                           std::int64_t count) const;

 private:
  void check_ranks() const;

  std::string directory_;
  std::vector<DumpIndex> ranks_;
};

}  // namespace ringworld
