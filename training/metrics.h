// Metrics as JSON lines: one object a line, so that a run can be followed while it goes on and read
// back with a line of Python or jq.
//
// The first line holds schema, version and the conditions of the run; every further line is one
// optimizer step. A number that is not finite is written as null, since JSON has no other way.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/device.h"
#include "training/offload.h"

namespace ringworld {

// One optimizer step. Losses are means over the tokens, in nats; everything is rank 0's view unless
// it says otherwise.
struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // over the global batch
  std::optional<double> validation_loss;
  double grad_norm = 0;  // before clipping, unscaled
  // Both only with loss scaling: the scale of this step, and whether it was skipped.
  std::optional<double> loss_scale;
  bool skipped = false;
  double learning_rate = 0;
  std::int64_t tokens = 0;  // trained so far, by all ranks
  double step_seconds = 0;
  double tokens_per_second = 0;           // in this step, all ranks
  std::optional<double> sgemm_fraction;   // model FLOPs over what OpenBLAS's sgemm does alone
  std::int64_t bytes_sent = 0;            // by this rank in this step
  std::int64_t collectives = 0;           // in this step
  std::optional<OffloadTraffic> offload;  // of this rank in this step, where something is offloaded
  std::optional<Ledger> host;             // of this rank's tiers, for their peaks since the start
  std::optional<Ledger> file;
  Ledger ledger;        // of this rank's device, for its peaks in this step
  Bytes peak_resident;  // of this rank's process, since its start
};

class MetricsWriter {
 public:
  // Replaces the file at `path` and writes the first line. Throws DataError when that cannot be
  // done. For one rank only: ranks would overwrite each other's lines.
  MetricsWriter(const std::string& path, const nlohmann::ordered_json& conditions);

  // Writes and flushes one line. Throws DataError when it cannot be written, for example on a full
  // disk.
  void write(const StepMetrics& metrics);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write_line(const nlohmann::ordered_json& object);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ringworld
