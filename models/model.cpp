#include "models/model.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "runtime/error.h"

namespace ringworld {

Tensor Saved::pop() {
  if (tensors_.empty()) {
    throw std::logic_error("Saved::pop: backward pops more tensors than forward pushed");
  }
  Tensor last = std::move(tensors_.back());
  tensors_.pop_back();
  return last;
}

Parameter* Model::add_parameter(Parameter parameter) {
  for (const auto& other : parameters_) {
    if (other->name == parameter.name) {
      throw std::logic_error(
          fmt::format("model {} has two parameters named {}", name_, parameter.name));
    }
  }
  parameters_.push_back(std::make_unique<Parameter>(std::move(parameter)));
  return parameters_.back().get();
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& parameter : parameters_) {
    count += parameter->shape.elements();
  }
  return count;
}

void Model::check_sequence_length(std::int64_t sequence_length) const {
  if (context_ > 0 && sequence_length > context_) {
    throw UsageError(fmt::format(
        "--sequence-length {} is longer than the context of {}, {} tokens; use at most that, or "
        "raise --context",
        sequence_length, name_, context_));
  }
}

double Model::flops_per_token(std::int64_t sequence_length) const {
  const double attention = 12.0 * static_cast<double>(attention_layers_) *
                           static_cast<double>(attention_width_) *
                           static_cast<double>(sequence_length);
  return 6.0 * static_cast<double>(parameter_count()) + attention;
}

void initialize(Backend& backend, const Parameter& parameter, const Tensor& value,
                std::int64_t first_element, std::uint64_t seed) {
  if (parameter.deviation == 0) {
    backend.fill(value, parameter.mean);
    return;
  }
  const RandomKey key{seed, Purpose::initial_weights, stream_of(parameter.name)};
  backend.normal(value, key, first_element, parameter.mean, parameter.deviation);
}

}  // namespace ringworld
