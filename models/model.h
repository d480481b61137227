// A language model as a chain of units, one device's view: no ranks here.
//
// A unit has forward and backward, written by hand. What backward needs is pushed on Saved, which
// is that micro-batch's activation memory. Strategies act on units (watch, wrap, gather and
// release), so a unit stays as it would be on one device.
//
// Shapes are written with B sequences in the micro-batch, T tokens in a sequence, C the width, H
// the hidden width of the feed-forward layers, V the vocabulary; a gradient's name is its tensor's
// with a d in front.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/tensor_parallel.h"
#include "runtime/backend.h"

namespace ringworld {

// Devices of other parts of the model whose gradients of a parameter are added to this one's, once
// backward is through.
enum class GradientSum : std::uint8_t {
  none,
  tensor_ranks,  // sequence parallelism: each has the gradient of its rows
  end_stages,    // a tied weight on the first and the last pipeline stage
};

// A named weight. Units refer to it; a strategy binds value and gradient to memory before the first
// forward. A tied weight is one Parameter seen by several units.
struct Parameter {
  std::string name;
  Shape shape;        // of what this device has; to Model::add_parameter, of the whole
  bool decay = true;  // takes weight decay; norms and biases do not
  double mean = 0;    // initial values are normal(mean, deviation), constant at deviation 0
  double deviation = 0;
  int split_axis = -1;  // along which tensor parallelism splits it; -1: never
  // Lengths along split_axis of what is split by itself, as queries, keys and values are; empty:
  // the whole axis is. A device has its part of each, one behind the other.
  std::vector<std::int64_t> sections = {};
  // An embedding's table that is no head's weight too: its rows are looked up, which takes no
  // floating-point operations.
  bool looked_up = false;
  bool normalizes =
      false;  // of a norm: sequence parallelism gives it the gradient of its rows only

  // Set by Model::add_parameter and Model::keep.
  Shape whole_shape = {};
  std::vector<Part> parts = {};  // along split_axis, of the whole; empty: this device has it whole
  GradientSum gradient_sum = GradientSum::none;
  // Of several devices that have the same elements, one counts them, in norms and the like.
  bool counted = true;

  Tensor value = {};     // (shape), in the model's dtype
  Tensor gradient = {};  // (shape), in gradient_dtype of the model's; backward adds to it
};

// One micro-batch.
struct Batch {
  Tensor tokens;   // (B, T) i32
  Tensor targets;  // (B, T) i32; negative: not trained
  // What the loss's gradient is multiplied with: one over the trained tokens of the whole optimizer
  // step, over all micro-batches and ranks. Losses are sums; this is the only normalisation.
  double gradient_factor = 1;
  // Dropout's masks are drawn from this seed; without one nothing is dropped, as in evaluation.
  std::optional<std::uint64_t> dropout_seed = {};
  // Where the micro-batch's first token stands among all tokens of the run: sequences are counted
  // over all steps, micro-batches and ranks, and the rows of a micro-batch follow one another.
  // Masks are drawn at this index, so they do not depend on how a batch is divided.
  std::int64_t first_token = 0;
};

// Calls f(first, own, count) for each run of consecutive elements that this device has of the
// elements [first_element, first_element + elements) of its part of the parameter: `first` counts
// within the whole parameter, `own` within the range asked for.
template <typename F>
void for_each_run(const Parameter& parameter, std::int64_t first_element, std::int64_t elements,
                  F f) {
  if (parameter.parts.empty()) {
    f(first_element, std::int64_t{0}, elements);
    return;
  }
  // Elements of one step along the split axis, and of the whole and the own axis.
  std::int64_t step = 1;
  for (int axis = parameter.split_axis + 1; axis < parameter.shape.axes(); ++axis) {
    step *= parameter.shape[axis];
  }
  const std::int64_t own_line = parameter.shape[parameter.split_axis] * step;
  const std::int64_t whole_line = parameter.whole_shape[parameter.split_axis] * step;
  const std::int64_t end = first_element + elements;
  for (std::int64_t line = first_element / own_line; line * own_line < end; ++line) {
    std::int64_t own = line * own_line;
    for (const Part& part : parameter.parts) {
      const std::int64_t begin = std::max(own, first_element);
      const std::int64_t stop = std::min(own + part.count * step, end);
      if (begin < stop) {
        f(line * whole_line + part.first * step + (begin - own), begin - first_element,
          stop - begin);
      }
      own += part.count * step;
    }
  }
}

// The tensors that backward needs, last in, first out; and what of backward has been put off.
class Saved {
 public:
  void push(Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  Tensor pop();  // throws std::logic_error when there is none: backward and forward disagree
  bool empty() const { return tensors_.empty(); }

  // Backward is to give the gradients of inputs only, and to put off those of weights that are
  // matrix products: what nobody waits for (Qi et al., Zero Bubble Pipeline Parallelism, 2023).
  void put_off_weights() { puts_off_ = true; }
  bool puts_off_weights() const { return puts_off_; }
  // gradient += dy^T x, later; it is read from the parameter then.
  void put_off(Parameter* weight, Tensor dy, Tensor x) {
    weights_.push_back({weight, std::move(dy), std::move(x)});
  }
  // x to be put off, of which the memory `changes` is about to change: a copy where it has to be.
  Tensor keep(Backend& backend, const Tensor& x, const Tensor& changes) const;
  // Does what has been put off, in its order.
  void add_weight_gradients(Backend& backend);

 private:
  struct WeightGradient {
    Parameter* weight;
    Tensor dy;
    Tensor x;
  };
  std::vector<Tensor> tensors_;
  bool puts_off_ = false;
  std::vector<WeightGradient> weights_;
};

class Unit {
 public:
  explicit Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit() = default;

  const std::string& name() const { return name_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }

  // How often a forward and a backward go over seams of tensor parallelism.
  virtual SeamCrossings forward_seams() const { return {}; }
  virtual SeamCrossings backward_seams() const { return {}; }

  // x (B, T, C) is undefined for the first unit, and is left as it is. The last unit returns the
  // tokens' losses (B * T) f32/f64, 0 where a token is not trained.
  virtual Tensor forward(Backend& backend, const Batch& batch, const Tensor& x, Saved& saved) = 0;
  // dy is undefined for the last unit, and is handed over: its memory may come back as dx's.
  // Returns dx, undefined from the first. Adds to the gradients of its parameters and pops what
  // forward pushed.
  virtual Tensor backward(Backend& backend, const Batch& batch, const Tensor& dy, Saved& saved) = 0;

 protected:
  std::vector<Parameter*> parameters_;  // in the order of use

 private:
  std::string name_;
};

class Model {
 public:
  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  // Longest sequence, 0 where any length will do.
  std::int64_t context() const { return context_; }
  // Of the activations between units, C.
  std::int64_t width() const { return width_; }
  // Throws UsageError, naming both, when sequences of this length are too long for the model.
  void check_sequence_length(std::int64_t sequence_length) const;
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Every parameter once, in order of first use; names are unique.
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  std::int64_t parameter_count() const;
  // Floating-point operations of forward and backward for one token of a sequence of T: 6 per
  // parameter that is not only looked up, plus 12 T C per layer for attention, counted without the
  // causal mask (the convention of PaLM, Chowdhery et al. 2022, appendix B). Recomputation does not
  // count.
  double flops_per_token(std::int64_t sequence_length) const;

  // The devices that each have a slice of every layer; of size 1 where nothing is split.
  const TensorParallel& tensor() const { return tensor_; }

  // Keeps the units of these runs, of which there is at least one unit, and the parameters that
  // they use: what a pipeline stage holds.
  void keep(const std::vector<Part>& runs);

  // For the builders in gpt2.h and the like. `tensor` outlives the model; nullptr: it is not split.
  Model(std::string name, DType dtype, std::int64_t vocabulary, std::int64_t context,
        const TensorParallel* tensor = nullptr);
  // Splits it where that is to be. Throws std::logic_error when the name is taken, and UsageError,
  // naming both numbers, when a section to be split has fewer rows than there are devices.
  Parameter* add_parameter(Parameter parameter);
  void add_unit(std::unique_ptr<Unit> unit) { units_.push_back(std::move(unit)); }
  void set_width(std::int64_t width) { width_ = width; }
  void set_attention(std::int64_t layers, std::int64_t width) {
    attention_layers_ = layers;
    attention_width_ = width;
  }

 private:
  std::string name_;
  DType dtype_;
  std::int64_t vocabulary_;
  std::int64_t context_;
  const TensorParallel& tensor_;
  std::int64_t width_ = 0;
  std::int64_t attention_layers_ = 0;
  std::int64_t attention_width_ = 0;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

// Fills parameter.value with its initial values: a function of seed, name and the element's index,
// so the same for every layout. `first_element` is where value begins within this device's part of
// the parameter.
void initialize(Backend& backend, const Parameter& parameter, const Tensor& value,
                std::int64_t first_element, std::uint64_t seed);

// --- Presets (presets.cpp) -----------------------------------------------------------------------

// Dimensions of a model; 0 keeps the preset's value.
struct ModelOptions {
  std::string name = "gpt2-tiny";  // one of model_names()
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t hidden = 0;  // of the feed-forward layers; 0: 4 * width, but Llama has its own
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  // Llama alone: heads of keys and values, each shared by heads / kv_heads queries; the base of
  // rotary positions; whether the head's weight is the embedding's.
  std::int64_t kv_heads = 0;
  double rope_theta = 0;
  std::optional<bool> tied = {};
  // The probability of dropping an element, 0 <= dropout < 1: of the embedding and of every branch
  // that adds to the residual, as GPT-2 does, but not of attention's probabilities, which are
  // never all there; mlp drops of the embedding and of each layer's output. Llama has none.
  double dropout = 0;
  // Compute attention's output and log-sum-exp again in backward instead of saving them (selective
  // recomputation, Korthikanti et al., 2022); the gradients are the same bits.
  bool recompute_attention = false;
};

// Builds the model, without memory for its parameters. Throws UsageError for an unknown name (with
// the nearest), dimensions that are negative, too large or that the model does not have, heads
// that do not divide the width, key-value heads that do not divide the heads, heads of an odd size
// where positions are rotary, or a dropout that is no probability below 1.
//
// With `tensor`, which outlives the model, this device's slice of it; UsageError, too, for heads
// and hidden widths that do not divide over so many devices.
std::unique_ptr<Model> make_model(const ModelOptions& options, DType dtype,
                                  const TensorParallel* tensor = nullptr);
std::vector<std::string> model_names();

}  // namespace ringworld
