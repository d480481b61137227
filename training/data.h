// Sequences to train on and to measure with, cut from a stream of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "training/token_stream.h"

namespace ringworld {

// Consecutive samples of a stream. Sample i of sequences of T tokens reads the tokens [iT, iT + T]
// from where the data set begins: the first T are the input, the last T the targets, so each token
// but the very first is predicted exactly once.
class TokenDataset {
 public:
  TokenDataset() = default;  // no samples
  TokenDataset(std::shared_ptr<const TokenStream> stream, std::int64_t sequence_length,
               std::int64_t first_sample, std::int64_t samples);

  std::int64_t samples() const { return samples_; }
  std::int64_t sequence_length() const { return sequence_length_; }
  // Tells data sets apart: of the number of samples and of some of them, evenly spaced.
  std::uint64_t fingerprint() const;
  // tokens, targets (T) = sample `index`
  void read(std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;

 private:
  std::shared_ptr<const TokenStream> stream_;
  std::int64_t sequence_length_ = 0;
  std::int64_t first_sample_ = 0;
  std::int64_t samples_ = 0;
};

struct DataOptions {
  std::vector<std::string> paths;     // to train on
  std::string validation_path;        // to measure with; empty: the end of `paths`
  double validation_fraction = 0.1;   // of the sequences, without a path; 0: none
  std::int64_t sequence_length = 64;  // tokens
};

struct Datasets {
  TokenDataset train;
  TokenDataset validation;  // without samples where none was asked for
};

// Opens the files, checks that every token is below `vocabulary`, and splits off the last sequences
// for validation: the fraction rounded, but at least one, and one is left to train on. Throws
// DataError that names path, tokens found and tokens needed when there are too few.
Datasets open_datasets(const DataOptions& options, std::int64_t vocabulary);
// The whole stream as one data set; throws as open_datasets does.
TokenDataset whole_dataset(std::shared_ptr<const TokenStream> stream, std::int64_t sequence_length);

// One micro-batch in host memory.
struct HostBatch {
  std::int64_t micro_batch = 0;       // B
  std::int64_t sequence_length = 0;   // T
  std::vector<std::int32_t> tokens;   // (B, T)
  std::vector<std::int32_t> targets;  // (B, T)
  // Of Batch: how dropout is drawn.
  std::optional<std::uint64_t> dropout_seed = {};
  std::int64_t first_token = 0;

  // To train with dropout: the first row is sequence `position` of the run (sample_order.h).
  void draw_dropout(std::uint64_t seed, std::int64_t position) {
    dropout_seed = seed;
    first_token = position * sequence_length;
  }
};

// The samples with these indices, one row each. A negative index gives a row that is not trained
// (targets -1), to fill up the last batch of a data set that does not divide.
HostBatch read_batch(const TokenDataset& dataset, std::span<const std::int64_t> samples);
// The same on the device, charged to activations; the gradient factor is left at 1.
Batch upload(Backend& backend, const HostBatch& batch);

}  // namespace ringworld
