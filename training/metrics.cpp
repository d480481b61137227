#include "training/metrics.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

nlohmann::ordered_json peak_bytes(const Ledger& ledger) {
  nlohmann::ordered_json peaks;
  for (std::size_t i = 0; i < category_count; ++i) {
    const auto category = static_cast<Category>(i);
    peaks[std::string(name_of(category))] = ledger.peak_in(category).value;
  }
  peaks["total"] = ledger.total_peak.value;
  return peaks;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path, const nlohmann::ordered_json& conditions)
    : path_(path), file_(std::fopen(path.c_str(), "we")) {
  if (!file_) {
    throw DataError(
        fmt::format("{}: metrics cannot be written there: {}", path, std::strerror(errno)));
  }
  write_line({{"schema", "ringworld.metrics"}, {"version", 1}, {"conditions", conditions}});
}

void MetricsWriter::write(const StepMetrics& metrics) {
  nlohmann::ordered_json line;
  line["step"] = metrics.step;
  line["loss"] = metrics.loss;
  if (metrics.validation_loss) {
    line["validation_loss"] = *metrics.validation_loss;
  }
  line["grad_norm"] = metrics.grad_norm;
  if (metrics.loss_scale) {
    line["loss_scale"] = *metrics.loss_scale;
    line["skipped"] = metrics.skipped;
  }
  line["learning_rate"] = metrics.learning_rate;
  line["tokens"] = metrics.tokens;
  line["step_seconds"] = metrics.step_seconds;
  line["tokens_per_second"] = metrics.tokens_per_second;
  if (metrics.sgemm_fraction) {
    line["sgemm_fraction"] = *metrics.sgemm_fraction;
  }
  line["bytes_sent"] = metrics.bytes_sent;
  line["collectives"] = metrics.collectives;
  if (metrics.offload) {
    const OffloadTraffic& moved = *metrics.offload;
    line["offload"] = {{"bytes_to_host", moved.to_host.value},
                       {"bytes_to_device", moved.to_device.value},
                       {"bytes_read_from_file", moved.file_read.value},
                       {"bytes_written_to_file", moved.file_written.value},
                       {"seconds_waited", moved.seconds_waited}};
  }
  if (metrics.host) {
    line["host_peak_bytes"] = peak_bytes(*metrics.host);
  }
  if (metrics.file) {
    line["file_peak_bytes"] = peak_bytes(*metrics.file);
  }
  line["peak_bytes"] = peak_bytes(metrics.ledger);
  line["peak_resident_bytes"] = metrics.peak_resident.value;
  write_line(line);
}

void MetricsWriter::write_line(const nlohmann::ordered_json& object) {
  // Names and paths may hold any bytes; what is not UTF-8 is replaced rather than refused.
  const std::string line =
      object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                       std::fflush(file_.get()) == 0;
  if (!written) {
    throw DataError(fmt::format("{}: metrics cannot be written: {}", path_, std::strerror(errno)));
  }
}

}  // namespace ringworld
