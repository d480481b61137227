#include "training/dump_comparison.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/error.h"
#include "training/relative_difference.h"

namespace ringworld {
namespace {

// Of a smaller part than this a whole tensor's error is not the doing.
constexpr double explains = 0.99;

// What orders tensors; backward goes from the last unit to the first.
struct Key {
  DumpKind kind;
  std::int64_t position;
  std::string name;

  bool operator<(const Key& other) const {
    return std::tie(kind, position, name) < std::tie(other.kind, other.position, other.name);
  }
};

// One rank's copy of a sequence of a tensor, or of a whole one.
struct Copy {
  int rank;
  const DumpEntry* entry;
  std::int64_t first;  // element of the entry
  std::int64_t count;
};

// By sequence, -1 for the whole; copies in the order of the ranks.
using RankCopies = std::map<std::int64_t, std::vector<Copy>>;

std::map<Key, RankCopies> copies_in(const Dump& dump) {
  std::map<Key, RankCopies> tensors;
  for (const DumpIndex& index : dump.ranks()) {
    for (const DumpEntry& e : index.entries) {
      const bool backwards = e.kind == DumpKind::backward || e.kind == DumpKind::gradient;
      RankCopies& copies = tensors[{e.kind, backwards ? -e.position : e.position, e.name}];
      if (e.sequences == 0) {
        copies[-1].push_back({index.rank, &e, 0, e.elements()});
        continue;
      }
      const std::int64_t each = e.elements() / e.sequences;
      for (std::int64_t i = 0; i < e.sequences; ++i) {
        copies[e.first_sequence + i].push_back({index.rank, &e, i * each, each});
      }
    }
  }
  return tensors;
}

// Consecutive elements of a whole tensor, and the ranks that are responsible for them.
struct Part {
  std::int64_t first;
  std::int64_t count;
  std::vector<int> ranks;
};

// What `copy` is made of. A rank that wrote a copy of its own answers for all of that; rank 0's
// copy consists of the shards of all others.
std::vector<Part> parts_of(const Dump& dump, const Copy& copy, const std::vector<Copy>& copies) {
  if (copy.rank != 0) {
    return {{0, copy.count, {copy.rank}}};
  }
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<int>> ranks;
  for (const DumpIndex& index : dump.ranks()) {
    const bool has_own =
        index.rank != 0 && std::ranges::find(copies, index.rank, &Copy::rank) != copies.end();
    for (const DumpShard& shard : index.shards) {
      if (!has_own && shard.parameter == copy.entry->name && shard.elements > 0 &&
          shard.first_element >= 0 && shard.first_element + shard.elements <= copy.count) {
        ranks[{shard.first_element, shard.elements}].push_back(index.rank);
      }
    }
  }
  std::vector<Part> parts;
  for (auto& [range, holders] : ranks) {
    parts.push_back({range.first, range.second, std::move(holders)});
  }
  return parts.empty() ? std::vector<Part>{{0, copy.count, {copy.rank}}} : parts;
}

class Comparer {
 public:
  Comparer(const Dump& a, const Dump& b, double bound) : a_(a), b_(b), bound_(bound) {}

  // What both have of the tensor.
  TensorDifference compare(const Key& key, const RankCopies& a, const RankCopies& b) {
    TensorDifference difference{.kind = key.kind, .name = key.name};
    ranks_a_.clear();
    ranks_b_.clear();
    for (const auto& [sequence, copies_a] : a) {
      const auto found = b.find(sequence);
      if (found == b.end()) {
        continue;
      }
      const std::vector<Copy>& copies_b = found->second;
      bool holds = true;
      // Every copy in A against B's first, every further one in B against A's first.
      for (std::size_t i = 0; i < copies_a.size(); ++i) {
        holds = compare(difference, sequence, copies_a, i, copies_b, 0) && holds;
      }
      for (std::size_t i = 1; i < copies_b.size(); ++i) {
        holds = compare(difference, sequence, copies_a, 0, copies_b, i) && holds;
      }
      if (!holds && sequence >= 0) {
        difference.sequences.push_back(sequence);
      }
    }
    difference.ranks_a.assign(ranks_a_.begin(), ranks_a_.end());
    difference.ranks_b.assign(ranks_b_.begin(), ranks_b_.end());
    return difference;
  }

 private:
  // Whether the bound holds.
  bool compare(TensorDifference& difference, std::int64_t sequence,
               const std::vector<Copy>& copies_a, std::size_t i, const std::vector<Copy>& copies_b,
               std::size_t j) {
    const Copy& a = copies_a[i];
    const Copy& b = copies_b[j];
    check_shapes(a, b);
    const std::vector<double> values_a = values(a_, a);
    const std::vector<double> values_b = values(b_, b);
    const double squares = sum_of_squares(values_b);
    const RelativeDifference whole = relative_difference(values_a, values_b, squares);
    const bool worst = whole.error > difference.relative_error;
    if (worst) {
      difference.relative_error = whole.error;
      difference.ratio = whole.ratio;
      difference.sequence = sequence;
    }
    difference.bit_equal = difference.bit_equal && whole.bit_equal;
    const bool holds = whole.error <= bound_;
    if (sequence >= 0) {
      if (!holds) {
        ranks_a_.insert(a.rank);
        ranks_b_.insert(b.rank);
      }
      return holds;
    }

    std::int64_t smallest = a.count;
    const auto look_at = [&](const std::vector<Part>& parts, std::set<int>& ranks) {
      std::set<int> found;
      std::set<int> all;
      for (const Part& part : parts) {
        const auto first = static_cast<std::size_t>(part.first);
        const auto count = static_cast<std::size_t>(part.count);
        const RelativeDifference own =
            relative_difference(std::span(values_a).subspan(first, count),
                                std::span(values_b).subspan(first, count), squares);
        all.insert(part.ranks.begin(), part.ranks.end());
        if (own.error > bound_) {
          found.insert(part.ranks.begin(), part.ranks.end());
        }
        if (worst && part.count < smallest && own.error >= explains * whole.error) {
          smallest = part.count;
          difference.ratio = own.ratio;
        }
      }
      // An error that no part has alone is that of all.
      ranks.insert(found.begin(), found.end());
      if (found.empty()) {
        ranks.insert(all.begin(), all.end());
      }
    };
    if (!holds) {
      look_at(parts_of(a_, a, copies_a), ranks_a_);
      look_at(parts_of(b_, b, copies_b), ranks_b_);
    }
    return holds;
  }

  void check_shapes(const Copy& a, const Copy& b) const {
    // The first axis counts sequences, which layouts cut as they like; losses have no other.
    const auto shape = [](const Copy& copy) {
      std::vector<std::int64_t> sizes = copy.entry->shape;
      if (copy.entry->sequences > 0 && !sizes.empty()) {
        sizes.front() /= copy.entry->sequences;
      }
      return sizes;
    };
    if (shape(a) != shape(b)) {
      throw DataError(fmt::format(
          "{} has another shape in {}, ({}), than in {}, ({}); only dumps of the same model and "
          "sequence length can be compared",
          describe(a.entry->kind, a.entry->name), a_.directory(), fmt::join(a.entry->shape, ", "),
          b_.directory(), fmt::join(b.entry->shape, ", ")));
    }
  }

  static std::vector<double> values(const Dump& dump, const Copy& copy) {
    std::vector<double> values = dump.read(copy.rank, *copy.entry, copy.first, copy.count);
    const bool scaled =
        copy.entry->kind == DumpKind::backward || copy.entry->kind == DumpKind::gradient;
    if (scaled && dump.front().loss_scale != 1) {
      for (double& value : values) {
        value /= dump.front().loss_scale;
      }
    }
    return values;
  }

  const Dump& a_;
  const Dump& b_;
  const double bound_;
  std::set<int> ranks_a_;
  std::set<int> ranks_b_;
};

// What `ours` has and `others` have not.
void list_lonely(const std::map<Key, RankCopies>& ours, const std::map<Key, RankCopies>& others,
                 std::vector<LonelyTensor>& list) {
  for (const auto& [key, copies] : ours) {
    const auto found = others.find(key);
    LonelyTensor lonely{.kind = key.kind, .name = key.name};
    for (const auto& [sequence, places] : copies) {
      if (found != others.end() && !found->second.contains(sequence) && sequence >= 0) {
        lonely.sequences.push_back(sequence);
      }
    }
    if (found == others.end() || !lonely.sequences.empty()) {
      list.push_back(std::move(lonely));
    }
  }
}

void check_comparable(const Dump& a, const Dump& b) {
  const DumpIndex& x = a.front();
  const DumpIndex& y = b.front();
  if (x.model != y.model || x.parameters != y.parameters) {
    throw DataError(fmt::format(
        "{} is a dump of {} with {} parameters, {} of {} with {}; only dumps of the same model can "
        "be compared",
        a.directory(), x.model, x.parameters, b.directory(), y.model, y.parameters));
  }
  if (x.step != y.step) {
    throw DataError(fmt::format(
        "{} is a dump of step {}, {} of step {}; only dumps of the same step can be compared",
        a.directory(), x.step, b.directory(), y.step));
  }
}

}  // namespace

const TensorDifference* DumpComparison::first_different() const {
  const auto first =
      std::ranges::find_if(tensors, [&](const TensorDifference& t) { return !holds(t); });
  return first == tensors.end() ? nullptr : &*first;
}

double default_dump_bound(DType precision) {
  switch (precision) {
    case DType::f64:
      return 1e-12;
    case DType::bf16:
      return 1e-2;
    case DType::f16:
      return 2e-3;
    default:
      return 1e-5;
  }
}

double default_dump_bound(const Dump& a, const Dump& b) {
  return std::max(default_dump_bound(a.front().precision), default_dump_bound(b.front().precision));
}

DumpComparison compare_dumps(const Dump& a, const Dump& b, double bound) {
  check_comparable(a, b);
  const std::map<Key, RankCopies> ours = copies_in(a);
  const std::map<Key, RankCopies> others = copies_in(b);
  DumpComparison result{.bound = bound, .tensors = {}, .only_in_a = {}, .only_in_b = {}};
  list_lonely(ours, others, result.only_in_a);
  list_lonely(others, ours, result.only_in_b);
  Comparer comparer(a, b, bound);
  for (const auto& [key, copies] : ours) {
    const auto found = others.find(key);
    const bool shares = found != others.end() && std::ranges::any_of(copies, [&](const auto& one) {
                          return found->second.contains(one.first);
                        });
    if (shares) {
      result.tensors.push_back(comparer.compare(key, copies, found->second));
    }
  }
  return result;
}

}  // namespace ringworld
