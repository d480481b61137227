#include "training/batch_check.h"

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "runtime/error.h"
#include "training/sample_order.h"

namespace ringworld {

void check_batches(const Mesh& mesh, const TokenDataset& data, std::uint64_t seed,
                   const BatchPlan& batches) {
  // The samples of this rank's first step, and a fingerprint of the tokens of the first
  // micro-batch.
  const SampleOrder order(seed, data.samples());
  std::vector<std::int64_t> own;
  for (std::int64_t i = 0; i < batches.accumulation_steps; ++i) {
    const std::int64_t first = batches.first_position(0, i, mesh.place().data);
    for (std::int64_t row = 0; row < batches.micro_batch; ++row) {
      own.push_back(order.at(first + row));
    }
  }
  const std::span<const std::int64_t> rows(own.data(),
                                           static_cast<std::size_t>(batches.micro_batch));
  std::uint64_t fingerprint = 0;
  for (const std::int32_t token : read_batch(data, rows).tokens) {
    fingerprint = (fingerprint ^ static_cast<std::uint64_t>(token)) * 0x100000001b3u;
  }
  own.push_back(static_cast<std::int64_t>(fingerprint));

  Communicator& world = mesh.world();
  Backend& backend = world.backend();
  const auto each = static_cast<std::int64_t>(own.size());
  const std::int64_t ranks = world.world_size();
  const Tensor mine = backend.empty(DType::i64, {each}, Category::communication);
  const Tensor all = backend.empty(DType::i64, {ranks, each}, Category::communication);
  backend.upload(mine, std::as_bytes(std::span<const std::int64_t>(own)));
  world.all_gather(all, mine, "batches").wait();
  std::vector<std::int64_t> everyones(static_cast<std::size_t>(ranks * each));
  backend.download(std::as_writable_bytes(std::span(everyones)), all);

  const auto of = [&](int rank) {
    return std::span<const std::int64_t>(everyones).subspan(static_cast<std::size_t>(rank * each),
                                                            static_cast<std::size_t>(each));
  };
  // An epoch may end within a step, so that a sample comes twice by right.
  const bool repeats = batches.global_batch > data.samples();
  std::map<std::int64_t, int> reader;  // of a sample: the first rank of the copy that reads it
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank) {
    const int first = rank / mesh.shape().model_ranks() * mesh.shape().model_ranks();
    if (!std::ranges::equal(of(rank), of(first))) {
      throw DataError(fmt::format(
          "rank {} reads other sequences than rank {}, with which it holds one copy of the model; "
          "give every rank the same --data and --seed",
          rank, first));
    }
    for (const std::int64_t sample : of(rank).first(static_cast<std::size_t>(each - 1))) {
      const int other = reader.try_emplace(sample, first).first->second;
      if (other != first && !repeats) {
        throw DataError(fmt::format(
            "ranks {} and {} hold copies of the model and both read sequence {} in one step; give "
            "every rank the same --data and --seed",
            other, first, sample));
      }
    }
  }
}

}  // namespace ringworld
