#include "training/parity.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "parallel/model_gradients.h"
#include "runtime/error.h"
#include "runtime/nearest.h"
#include "training/gradient_step.h"
#include "training/relative_difference.h"
#include "training/sample_order.h"

namespace ringworld {
namespace {

struct Comparison {
  double relative_error;
  double ratio;
  double bit_equal;  // 1 or 0: a number, as it travels with the others
};
constexpr std::int64_t comparison_fields = 3;

// `ours` is a part of `whole`, and `control` the same part of the control. Every rank has the same
// control, so they all throw or none does.
Comparison compare(const std::string& what, std::span<const double> ours,
                   std::span<const double> control, std::span<const double> whole) {
  const double squares = sum_of_squares(whole);
  if (!std::isfinite(squares)) {
    throw NumericalError(
        fmt::format("{} is not finite in the control, a single process, so there is nothing to "
                    "compare with; lower --learning-rate",
                    what));
  }
  const RelativeDifference difference = relative_difference(ours, control, squares);
  return {difference.error, difference.ratio, difference.bit_equal ? 1.0 : 0.0};
}

// What this rank has of the whole parameter's values: the elements [first, first + elements) of its
// own part.
std::vector<double> part_of(std::span<const double> whole, const Parameter& own, std::int64_t first,
                            std::int64_t elements) {
  std::vector<double> part(static_cast<std::size_t>(elements));
  for_each_run(own, first, elements, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    std::copy_n(whole.begin() + from, count, part.begin() + to);
  });
  return part;
}

class ParityCheck {
 public:
  ParityCheck(const ParityOptions& options, const TokenDataset& data, Backend& backend,
              Communicator& communicator, const TrainingState::MakeBackend& make_backend)
      : options_(options),
        data_(data),
        backend_(backend),
        communicator_(communicator),
        whole_(make_model(options.training.model, options.training.precision)),
        ours_(options.training, backend, communicator, make_backend) {
    for (const auto& p : ours_.model().parameters()) {
      own_.emplace(p->name, p.get());
    }
    check_plant();
    check_plant_has_a_place();
    if (communicator.rank() == 0) {
      control_backend_ = make_backend(Device::create({}));
      control_.emplace(options.training, *control_backend_);
    }
    result_.tensors = static_cast<std::int64_t>(whole_->parameters().size());
  }

  ParityResult run() {
    for (std::int64_t step = 1; step <= options_.steps && result_.broken.empty(); ++step) {
      compare_gradients(step);
      if (result_.broken.empty()) {
        compare_updates(step);
      }
      result_.steps_compared = step;
    }
    return result_;
  }

 private:
  void check_plant() const {
    if (!options_.plant) {
      return;
    }
    if (options_.plant->rank < 0 || options_.plant->rank >= communicator_.world_size()) {
      throw UsageError(fmt::format("--plant: rank {} does not exist; there are ranks 0 to {}",
                                   options_.plant->rank, communicator_.world_size() - 1));
    }
    std::vector<std::string> names;
    for (const auto& p : whole_->parameters()) {
      names.push_back(p->name);
    }
    if (std::find(names.begin(), names.end(), options_.plant->tensor) == names.end()) {
      throw UsageError(fmt::format("--plant: the model {} has no tensor '{}'; did you mean '{}'?",
                                   whole_->name(), options_.plant->tensor,
                                   nearest(options_.plant->tensor, names)));
    }
  }

  // Where gradients are sharded, a rank may hold no part of a tensor.
  void check_plant_has_a_place() {
    if (!options_.plant) {
      return;
    }
    const bool holds = std::ranges::any_of(ours_.strategy().shards(), [&](const Shard& shard) {
      return shard.parameter->name == options_.plant->tensor;
    });
    const std::int64_t rank = communicator_.rank();
    const std::int64_t first = communicator_.all_reduce_value(
        holds ? rank : std::int64_t{communicator_.world_size()}, ReduceOp::min, "verify plant");
    const std::int64_t there = communicator_.all_reduce_value(
        std::int64_t{holds && rank == options_.plant->rank}, ReduceOp::max, "verify plant");
    if (there == 0) {
      throw UsageError(fmt::format(
          "--plant: with {} rank {} holds no part of the gradient of '{}'; rank {} does",
          options_.training.strategy.name, options_.plant->rank, options_.plant->tensor, first));
    }
  }

  void compare_gradients(std::int64_t step) {
    sent_before_step_ = bytes_sent();
    const std::vector<HostBatch> micro_batches = our_micro_batches(step);
    const GradientStep ours =
        compute_gradients(ours_.model(), backend_, ours_.strategy(), ours_.mesh(), micro_batches,
                          {.loss_scale = options_.loss_scale,
                           .checkpoint = options_.checkpoint,
                           .stage = &ours_.stage()});
    add_to_digest(std::bit_cast<std::int64_t>(ours.loss));
    if (step == 1 && options_.plant && options_.plant->rank == communicator_.rank()) {
      plant_fault();
    }
    double control_loss = 0;
    if (control_) {
      const HostBatch whole[] = {samples(step, 0, options_.batches.global_batch)};
      control_loss = compute_gradients(control_->model(), *control_backend_, control_->strategy(),
                                       nullptr, whole, {.loss_scale = options_.loss_scale})
                         .loss;
    }
    control_loss = communicator_.all_reduce_value(control_loss, ReduceOp::sum, "verify loss");

    std::vector<std::string> names{"loss"};
    std::vector<Comparison> comparisons{compare("loss", std::span(&ours.loss, 1),
                                                std::span(&control_loss, 1),
                                                std::span(&control_loss, 1))};
    for (std::size_t i = 0; i < whole_->parameters().size(); ++i) {
      names.push_back("gradient of " + whole_->parameters()[i]->name);
      comparisons.push_back(compare_gradient(names.back(), i));
    }
    judge(step, names, comparisons);
  }

  void compare_updates(std::int64_t step) {
    update(ours_);
    if (control_) {
      update(*control_);
    }
    count_bytes();
    std::vector<std::string> names;
    std::vector<Comparison> comparisons;
    for (std::size_t i = 0; i < whole_->parameters().size(); ++i) {
      names.push_back("parameter " + whole_->parameters()[i]->name);
      comparisons.push_back(compare_value(names.back(), i));
    }
    judge(step, names, comparisons);
  }

  void update(TrainingState& side) const {
    side.strategy().begin_update();
    side.optimizer().step(
        options_.learning_rate,
        clip_scale(gradient_norm(side.mesh(), side.strategy()) / options_.loss_scale,
                   options_.clip_norm) /
            options_.loss_scale);
    side.strategy().finish_update();
  }

  // This rank's part of a parameter of the whole model; nullptr: it has none.
  const Parameter* own(std::size_t index) const {
    const auto found = own_.find(whole_->parameters()[index]->name);
    return found == own_.end() ? nullptr : found->second;
  }

  // Each rank holds its shard of the gradient, or all it has of it, against the control's.
  Comparison compare_gradient(const std::string& what, std::size_t index) {
    const std::vector<double> control = control_tensor(index, &Strategy::full_gradient);
    const Parameter* p = own(index);
    if (p != nullptr) {
      add_to_digest(backend_.fingerprint(ours_.strategy().full_gradient(*p)));
    }
    for (const Shard& shard : ours_.strategy().shards()) {
      if (shard.parameter == p) {
        return compare(what, backend_.download_values(shard.gradient),
                       part_of(control, *p, shard.first_element, shard.gradient.elements()),
                       control);
      }
    }
    return compare(what, {}, {}, control);
  }

  Comparison compare_value(const std::string& what, std::size_t index) {
    const std::vector<double> control = control_tensor(index, &Strategy::full_value);
    const Parameter* p = own(index);
    if (p == nullptr) {
      return compare(what, {}, {}, control);
    }
    const Tensor ours = ours_.strategy().full_value(*p);
    add_to_digest(backend_.fingerprint(ours));
    return compare(what, backend_.download_values(ours), part_of(control, *p, 0, ours.elements()),
                   control);
  }

  // Rank 0 sends the control's tensor to all.
  std::vector<double> control_tensor(std::size_t index,
                                     Tensor (Strategy::*whole)(const Parameter&)) {
    const Parameter& p = *whole_->parameters()[index];
    std::vector<double> values(static_cast<std::size_t>(p.shape.elements()));
    if (control_) {
      values = control_backend_->download_values(
          (control_->strategy().*whole)(*control_->model().parameters()[index]));
    }
    const Tensor travels = backend_.empty(
        DType::f64, Shape{static_cast<std::int64_t>(values.size())}, Category::workspace);
    backend_.upload_values(travels, values);
    communicator_.broadcast(travels, 0, "verify " + p.name).wait();
    return backend_.download_values(travels);
  }

  void add_to_digest(std::int64_t bits) {
    result_.digest = (result_.digest ^ static_cast<std::uint64_t>(bits)) * 0x9e3779b97f4a7c15u;
    result_.digest ^= result_.digest >> 32;
  }

  void count_bytes() {
    const auto all = [&](Bytes bytes, const char* label) {
      return Bytes(communicator_.all_reduce_value(bytes.value, ReduceOp::sum, label));
    };
    result_.bytes_sent += all(bytes_sent() - sent_before_step_, "verify bytes");
    result_.state_held =
        all(state_in(backend_.device().ledger()) +
                (ours_.host() != nullptr ? state_in(ours_.host()->ledger()) : Bytes(0)),
            "verify memory");
    result_.bytes_expected += ours_.parallel().expected_traffic(
        static_cast<int>(options_.batches.accumulation_steps),
        {options_.batches.micro_batch, data_.sequence_length()}, options_.checkpoint);
    // Of this rank's slice, on all ranks that have the same; one of them tells it.
    const Copies copies = ours_.strategy().expected_copies();
    const std::int64_t elements =
        ours_.mesh()->place().data == 0 ? ours_.model().parameter_count() : 0;
    result_.state_expected =
        all(copies.gradients * elements * size_of(gradient_dtype(precision())) +
                copies.parameters * elements * parameter_bytes_per_element() +
                copies.optimizer * elements * optimizer_bytes_per_element(),
            "verify memory");
  }

  // Takes every rank's comparisons into the result.
  void judge(std::int64_t step, const std::vector<std::string>& names,
             const std::vector<Comparison>& own) {
    const auto count = static_cast<std::int64_t>(own.size());
    const std::int64_t ranks = communicator_.world_size();
    const Tensor mine =
        backend_.empty(DType::f64, {count, comparison_fields}, Category::communication);
    const Tensor all =
        backend_.empty(DType::f64, {ranks, count, comparison_fields}, Category::communication);
    backend_.upload(mine, std::as_bytes(std::span(own)));
    communicator_.all_gather(all, mine, "verify comparisons").wait();
    std::vector<Comparison> everyones(static_cast<std::size_t>(ranks * count));
    backend_.download(std::as_writable_bytes(std::span(everyones)), all);

    result_.comparisons += count;
    for (std::size_t i = 0; i < own.size(); ++i) {
      Difference worst{.what = names[i], .step = step};
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const Comparison& c = everyones[static_cast<std::size_t>(rank * count) + i];
        result_.bit_equal = result_.bit_equal && c.bit_equal == 1;
        if (c.relative_error > worst.relative_error) {
          worst.rank = static_cast<int>(rank);
          worst.relative_error = c.relative_error;
          worst.ratio = c.ratio;
        }
      }
      if (worst.relative_error > options_.bound) {
        result_.broken.push_back(worst);
      }
      if (result_.largest.what.empty() || worst.relative_error > result_.largest.relative_error) {
        result_.largest = worst;
      }
    }
    std::stable_sort(result_.broken.begin(), result_.broken.end(),
                     [](const Difference& a, const Difference& b) {
                       return a.relative_error > b.relative_error;
                     });
  }

  void plant_fault() {
    for (const Shard& shard : ours_.strategy().shards()) {
      if (shard.parameter->name == options_.plant->tensor) {
        backend_.scale(shard.gradient, options_.plant->factor);
      }
    }
  }

  static Bytes state_in(const Ledger& ledger) {
    return ledger.held_in(Category::parameters) + ledger.held_in(Category::gradients) +
           ledger.held_in(Category::optimizer);
  }
  DType precision() const { return options_.training.precision; }

  // On device and host: what is in a file is counted there in pages.
  Bytes parameter_bytes_per_element() const {
    const bool in_file =
        ours_.file() != nullptr && options_.training.offload.what == Offload::parameters;
    return in_file ? Bytes(0) : size_of(precision());
  }

  // The states, beside a 16-bit parameter its master copy, and a copy of the parameter where that
  // is its own master and masters are offloaded.
  Bytes optimizer_bytes_per_element() const {
    const DType wide = gradient_dtype(precision());
    const Offload offload = options_.training.offload.what;
    const int masters = wide != precision() || offload == Offload::master ? 1 : 0;
    const bool states_in_file = ours_.file() != nullptr;
    const bool masters_in_file = states_in_file && offload != Offload::optimizer;
    const int states = UpdateRule(options_.training.optimizer).states();
    return ((states_in_file ? 0 : states) + (masters_in_file ? 0 : masters)) * size_of(wide);
  }

  Bytes bytes_sent() const {
    Bytes sent;
    for (const auto& [label, traffic] : communicator_.traffic_by_label()) {
      // The few numbers that a loss over a split vocabulary takes are not in the formulas.
      static constexpr std::string_view counted[] = {"gradients", "parameters", "tensor",
                                                     "pipeline", "model"};
      const bool counts = std::ranges::any_of(
          counted, [&](std::string_view kind) { return label.starts_with(kind); });
      if (counts && !label.starts_with("tensor loss")) {
        sent += traffic.bytes_sent;
      }
    }
    return sent;
  }

  HostBatch samples(std::int64_t step, std::int64_t first, std::int64_t count) const {
    const SampleOrder order(options_.training.seed, data_.samples());
    const std::int64_t position = (step - 1) * options_.batches.global_batch + first;
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < count; ++i) {
      indices.push_back(order.at(position + i));
    }
    HostBatch batch = read_batch(data_, indices);
    batch.draw_dropout(options_.training.seed, position);
    return batch;
  }

  std::vector<HostBatch> our_micro_batches(std::int64_t step) const {
    std::vector<HostBatch> batches;
    for (std::int64_t i = 0; i < options_.batches.accumulation_steps; ++i) {
      batches.push_back(samples(step,
                                options_.batches.first_position(0, i, ours_.mesh()->place().data),
                                options_.batches.micro_batch));
    }
    return batches;
  }

  const ParityOptions& options_;
  const TokenDataset& data_;
  Backend& backend_;
  Communicator& communicator_;
  std::unique_ptr<Model> whole_;  // without memory: what there is to compare
  TrainingState ours_;
  std::unordered_map<std::string, const Parameter*> own_;  // of this rank, by name
  std::unique_ptr<Backend> control_backend_;               // rank 0 only
  std::optional<TrainingState> control_;                   // rank 0 only
  Bytes sent_before_step_;
  ParityResult result_;
};

}  // namespace

double rounding_bound(const TrainingSetup& training) {
  if (training.precision == DType::f64) {
    return 1e-12;
  }
  if (training.precision == DType::f32) {
    return 1e-5;
  }
  if (!training.mesh || training.mesh->tensor == 1) {
    return training.precision == DType::bf16 ? 0x1p-8 : 0x1p-11;
  }
  int roundings = 1;
  const std::unique_ptr<Model> whole = make_model(training.model, training.precision);
  for (const auto& unit : whole->units()) {
    roundings += unit->forward_seams().reduces + unit->backward_seams().reduces;
  }
  return roundings * 0x1p-8;
}

ParityResult check_parity(const ParityOptions& options, const TokenDataset& data, Backend& backend,
                          Communicator& communicator,
                          const TrainingState::MakeBackend& make_backend) {
  return ParityCheck(options, data, backend, communicator, make_backend).run();
}

}  // namespace ringworld
