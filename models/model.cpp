#include "models/model.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>
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

Tensor Saved::keep(Backend& backend, const Tensor& x, const Tensor& changes) const {
  if (!puts_off_ || x.storage() != changes.storage()) {
    return x;
  }
  Tensor copy = backend.empty(x.dtype(), x.shape(), Category::activations);
  backend.copy(copy, x);
  return copy;
}

void Saved::add_weight_gradients(Backend& backend) {
  for (WeightGradient& of : weights_) {
    backend.matmul(of.weight->gradient, of.dy, of.x, {.transpose_a = true, .accumulate = true});
    of = {};
  }
  weights_.clear();
}

namespace {

const TensorParallel& nothing_split() {
  static const TensorParallel one(0, 1, /*sequence_parallel=*/false);
  return one;
}

void split(Parameter& p, const TensorParallel& tensor) {
  if (p.sections.empty()) {
    p.sections = {p.shape[p.split_axis]};
  }
  std::int64_t first = 0;
  std::int64_t own = 0;
  for (const std::int64_t section : p.sections) {
    if (section < tensor.size()) {
      throw UsageError(fmt::format(
          "'{}' has {} rows or columns to be split over {} tensor ranks; use at most {}", p.name,
          section, tensor.size(), section));
    }
    const Part part = tensor.part(section);
    p.parts.push_back({first + part.first, part.count});
    first += section;
    own += part.count;
  }
  p.shape = p.split_axis == 0 && p.shape.axes() == 1 ? Shape{own}
            : p.split_axis == 0                      ? Shape{own, p.shape[1]}
                                                     : Shape{p.shape[0], own};
}

}  // namespace

Model::Model(std::string name, DType dtype, std::int64_t vocabulary, std::int64_t context,
             const TensorParallel* tensor)
    : name_(std::move(name)),
      dtype_(dtype),
      vocabulary_(vocabulary),
      context_(context),
      tensor_(tensor != nullptr ? *tensor : nothing_split()) {}

Parameter* Model::add_parameter(Parameter parameter) {
  for (const auto& other : parameters_) {
    if (other->name == parameter.name) {
      throw std::logic_error(
          fmt::format("model {} has two parameters named {}", name_, parameter.name));
    }
  }
  parameter.whole_shape = parameter.shape;
  if (tensor_.is_split()) {
    if (parameter.split_axis >= 0) {
      split(parameter, tensor_);
    } else {
      parameter.counted = tensor_.rank() == 0;
      if (parameter.normalizes && tensor_.sequence_parallel()) {
        parameter.gradient_sum = GradientSum::tensor_ranks;
      }
    }
  }
  parameters_.push_back(std::make_unique<Parameter>(std::move(parameter)));
  return parameters_.back().get();
}

void Model::keep(const std::vector<Part>& runs) {
  const auto in_runs = [&](std::int64_t unit) {
    return std::ranges::any_of(
        runs, [&](const Part& run) { return unit >= run.first && unit < run.first + run.count; });
  };
  std::vector<std::unique_ptr<Unit>> kept;
  std::unordered_set<const Parameter*> used;
  std::unordered_set<const Parameter*> used_elsewhere;
  std::unordered_set<const Parameter*> used_before;  // by a unit that is not kept
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const bool here = in_runs(static_cast<std::int64_t>(unit));
    for (const Parameter* p : units_[unit]->parameters()) {
      (here ? used : used_elsewhere).insert(p);
      if (!here && !used.contains(p)) {
        used_before.insert(p);
      }
    }
    if (here) {
      kept.push_back(std::move(units_[unit]));
    }
  }
  for (const auto& p : parameters_) {
    if (used.contains(p.get()) && used_elsewhere.contains(p.get())) {
      p->gradient_sum = GradientSum::end_stages;
      p->counted = p->counted && !used_before.contains(p.get());
    }
  }
  units_ = std::move(kept);
  std::erase_if(parameters_, [&](const auto& p) { return !used.contains(p.get()); });
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
  std::int64_t multiplied = 0;
  for (const auto& parameter : parameters_) {
    multiplied += parameter->looked_up ? 0 : parameter->shape.elements();
  }
  return 6.0 * static_cast<double>(multiplied) + attention;
}

void initialize(Backend& backend, const Parameter& parameter, const Tensor& value,
                std::int64_t first_element, std::uint64_t seed) {
  if (parameter.deviation == 0) {
    backend.fill(value, parameter.mean);
    return;
  }
  const RandomKey key{seed, Purpose::initial_weights, stream_of(parameter.name)};
  const Tensor flat = value.view({value.elements()});
  for_each_run(parameter, first_element, value.elements(),
               [&](std::int64_t first, std::int64_t own, std::int64_t count) {
                 backend.normal(flat.slice(own, count), key, first, parameter.mean,
                                parameter.deviation);
               });
}

}  // namespace ringworld
