#include "training/data.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {

TokenDataset::TokenDataset(std::shared_ptr<const TokenStream> stream, std::int64_t sequence_length,
                           std::int64_t first_sample, std::int64_t samples)
    : stream_(std::move(stream)),
      sequence_length_(sequence_length),
      first_sample_(first_sample),
      samples_(samples) {}

std::uint64_t TokenDataset::fingerprint() const {
  constexpr std::int64_t looked_at = 64;
  const auto length = static_cast<std::size_t>(sequence_length_);
  std::vector<std::int32_t> tokens(length);
  std::vector<std::int32_t> targets(length);
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  const auto add = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211u;
  };
  add(samples_);
  for (std::int64_t i = 0; i < std::min(samples_, looked_at); ++i) {
    read(i * samples_ / std::min(samples_, looked_at), tokens, targets);
    std::for_each(tokens.begin(), tokens.end(), add);
  }
  return hash;
}

void TokenDataset::read(std::int64_t index, std::span<std::int32_t> tokens,
                        std::span<std::int32_t> targets) const {
  if (index < 0 || index >= samples_) {
    throw std::out_of_range(fmt::format("sample {} of {}", index, samples_));
  }
  const std::int64_t first = (first_sample_ + index) * sequence_length_;
  stream_->read(first, tokens);
  stream_->read(first + 1, targets);
}

TokenDataset whole_dataset(std::shared_ptr<const TokenStream> stream,
                           std::int64_t sequence_length) {
  if (sequence_length < 1) {
    throw UsageError(
        fmt::format("the sequence length is {}, it must be 1 or more", sequence_length));
  }
  const std::int64_t samples = (stream->tokens() - 1) / sequence_length;
  if (stream->tokens() <= sequence_length) {
    throw DataError(fmt::format(
        "{}: has {} tokens, but one sequence of {} needs {} (its targets are shifted by one); give "
        "more data or a shorter --sequence-length",
        stream->description(), stream->tokens(), sequence_length, sequence_length + 1));
  }
  return {std::move(stream), sequence_length, 0, samples};
}

Datasets open_datasets(const DataOptions& options, std::int64_t vocabulary) {
  const auto open = [&](const std::vector<std::string>& paths) {
    auto stream = TokenStream::open(paths);
    stream->check_vocabulary(vocabulary);
    return stream;
  };
  const std::int64_t length = options.sequence_length;
  const auto stream = open(options.paths);
  const TokenDataset whole = whole_dataset(stream, length);
  if (!options.validation_path.empty()) {
    return {whole, whole_dataset(open({options.validation_path}), length)};
  }
  if (options.validation_fraction <= 0) {
    return {whole, {}};
  }
  if (whole.samples() < 2) {
    throw DataError(
        fmt::format("{}: has {} tokens, but one sequence of {} to train on and one for validation "
                    "need {}; give "
                    "more data, a shorter --sequence-length or --validation-fraction 0",
                    stream->description(), stream->tokens(), length, 2 * length + 1));
  }
  const auto wanted =
      std::llround(options.validation_fraction * static_cast<double>(whole.samples()));
  const std::int64_t validation = std::clamp<std::int64_t>(wanted, 1, whole.samples() - 1);
  const std::int64_t train = whole.samples() - validation;
  return {TokenDataset(stream, length, 0, train), TokenDataset(stream, length, train, validation)};
}

HostBatch read_batch(const TokenDataset& dataset, std::span<const std::int64_t> samples) {
  const auto rows = samples.size();
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  HostBatch batch{static_cast<std::int64_t>(rows), dataset.sequence_length(),
                  std::vector<std::int32_t>(rows * length, 0),
                  std::vector<std::int32_t>(rows * length, -1)};
  for (std::size_t row = 0; row < rows; ++row) {
    if (samples[row] < 0) {
      continue;
    }
    dataset.read(samples[row], std::span(batch.tokens).subspan(row * length, length),
                 std::span(batch.targets).subspan(row * length, length));
  }
  return batch;
}

Batch upload(Backend& backend, const HostBatch& batch) {
  const auto to_device = [&](const std::vector<std::int32_t>& values) {
    const Tensor tensor = backend.empty(DType::i32, {batch.micro_batch, batch.sequence_length},
                                        Category::activations);
    backend.upload(tensor, std::as_bytes(std::span(values)));
    return tensor;
  };
  return {.tokens = to_device(batch.tokens),
          .targets = to_device(batch.targets),
          .dropout_seed = batch.dropout_seed,
          .first_token = batch.first_token};
}

}  // namespace ringworld
