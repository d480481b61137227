#include "training/tensor_dump.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

// What a file is called until it is whole.
constexpr const char* partial = ".partial";

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (int axis = 0; axis < shape.axes(); ++axis) {
    sizes.push_back(shape[axis]);
  }
  return sizes;
}

}  // namespace

TensorDump::TensorDump(const DumpOptions& options, const Model& model, Backend& backend,
                       Communicator& communicator)
    : directory_(options.directory), model_(model), backend_(backend), communicator_(communicator) {
  index_.rank = communicator.rank();
  index_.world_size = communicator.world_size();
  index_.step = options.step;
  index_.model = model.name();
  index_.parameters = model.parameter_count();
  index_.precision = model.dtype();

  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    fail(directory_, error.message());
  }
  if (holds_dump(directory_)) {
    throw DataError(fmt::format(
        "{}: holds a dump already; name another directory for this one, or remove it", directory_));
  }
  file_.reset(std::fopen((path("bin") + partial).c_str(), "we"));
  if (file_ == nullptr) {
    fail(path("bin"), std::strerror(errno));
  }
}

TensorDump::~TensorDump() {
  if (file_ != nullptr) {
    std::error_code ignored;
    std::filesystem::remove(path("bin") + partial, ignored);
  }
}

std::string TensorDump::path(std::string_view suffix) const {
  return dump_path(directory_, index_.rank, suffix);
}

void TensorDump::fail(const std::string& path, const std::string& why) const {
  throw DataError(
      fmt::format("{}: the dump of step {} cannot be written there: {}", path, index_.step, why));
}

void TensorDump::append(DumpEntry entry, std::span<const std::byte> bytes) {
  if (file_ == nullptr) {
    throw std::logic_error("TensorDump: written to after finish");
  }
  entry.order = static_cast<std::int64_t>(index_.entries.size());
  entry.offset = offset_;
  entry.bytes = static_cast<std::int64_t>(bytes.size());
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    fail(path("bin"), std::strerror(errno));
  }
  offset_ += entry.bytes;
  index_.entries.push_back(std::move(entry));
}

void TensorDump::append(DumpEntry entry, const Tensor& x) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.bytes().value));
  backend_.download(bytes, x);
  entry.dtype = x.dtype();
  entry.shape = sizes_of(x.shape());
  append(std::move(entry), bytes);
}

// --- Between units ------------------------------------------------------------------------------

void TensorDump::before_micro_batch(const Batch& batch, int /*micro_batch*/, const Unit& /*next*/,
                                    bool /*backward*/) {
  const Shape& shape = batch.tokens.shape();  // (B, T)
  sequences_ = shape[0];
  first_sequence_ = batch.first_token / shape[1];
}

void TensorDump::after_forward(const Unit& unit, const Tensor& y) {
  write_unit(DumpKind::forward, unit, y);
}

void TensorDump::after_backward(const Unit& unit, const Tensor& dx) {
  if (dx.defined()) {
    write_unit(DumpKind::backward, unit, dx);
  }
}

void TensorDump::write_unit(DumpKind kind, const Unit& unit, const Tensor& x) {
  if (sequences_ == 0) {
    throw std::logic_error("TensorDump: a unit before any micro-batch");
  }
  const auto place = std::ranges::find(model_.units(), &unit, &std::unique_ptr<Unit>::get);
  append({.kind = kind,
          .name = unit.name(),
          .unit = unit.name(),
          .position = place - model_.units().begin(),
          .first_sequence = first_sequence_,
          .sequences = sequences_},
         x);
}

// --- Of the whole step --------------------------------------------------------------------------

void TensorDump::write_gradients(Strategy& strategy, const GradientStep& step) {
  index_.strategy = strategy.name();
  index_.loss_scale = step.loss_scale;
  for (const Shard& shard : strategy.shards()) {
    index_.shards.push_back({.parameter = shard.parameter->name,
                             .first_element = shard.first_element,
                             .elements = shard.gradient.elements()});
  }
  write_number(DumpKind::loss, step.loss);
  const auto& parameters = model_.parameters();
  for (std::size_t i = parameters.size(); i-- > 0;) {
    write_whole(DumpKind::gradient, i, strategy.full_gradient(*parameters[i]));
  }
  write_number(DumpKind::norm, step.gradient_norm);
}

void TensorDump::write_parameters(Strategy& strategy) {
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    write_whole(DumpKind::parameter, i, strategy.full_value(*model_.parameters()[i]));
  }
}

void TensorDump::write_number(DumpKind kind, double value) {
  if (communicator_.rank() == 0) {
    append({.kind = kind, .name = std::string(name_of(kind)), .dtype = DType::f64},
           std::as_bytes(std::span(&value, 1)));
  }
}

void TensorDump::write_whole(DumpKind kind, std::size_t position, const Tensor& x) {
  const Parameter& parameter = *model_.parameters()[position];
  const std::int64_t own = backend_.fingerprint(x);
  const std::int64_t first = communicator_.all_reduce_value(
      communicator_.rank() == 0 ? own : std::int64_t{0}, ReduceOp::sum, "dump " + parameter.name);
  if (communicator_.rank() == 0 || own != first) {
    append({.kind = kind,
            .name = parameter.name,
            .unit = unit_of(parameter),
            .position = static_cast<std::int64_t>(position)},
           x);
  }
}

std::string TensorDump::unit_of(const Parameter& parameter) const {
  for (const auto& unit : model_.units()) {
    if (std::ranges::find(unit->parameters(), &parameter) != unit->parameters().end()) {
      return unit->name();
    }
  }
  return {};
}

// The index is the last to get its name: where it is, all is there.
void TensorDump::finish() {
  if (file_ == nullptr) {
    throw std::logic_error("TensorDump: finished twice");
  }
  if (std::fflush(file_.get()) != 0) {
    fail(path("bin"), std::strerror(errno));
  }
  const std::string json = path("json") + partial;
  {
    const std::unique_ptr<std::FILE, Close> index(std::fopen(json.c_str(), "we"));
    const std::string text = json_of(index_).dump(1) + "\n";
    if (index == nullptr || std::fwrite(text.data(), 1, text.size(), index.get()) != text.size() ||
        std::fflush(index.get()) != 0) {
      const std::string why = std::strerror(errno);
      std::error_code ignored;
      std::filesystem::remove(json, ignored);
      fail(path("json"), why);
    }
  }
  for (const char* suffix : {"bin", "json"}) {
    std::error_code error;
    std::filesystem::rename(path(suffix) + partial, path(suffix), error);
    if (error) {
      fail(path(suffix), error.message());
    }
  }
  file_.reset();
}

}  // namespace ringworld
