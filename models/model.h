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

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend.h"

namespace ringworld {

// A named weight. Units refer to it; a strategy binds value and gradient to memory before the first
// forward. A tied weight is one Parameter seen by several units.
struct Parameter {
  std::string name;
  Shape shape;
  bool decay = true;  // takes weight decay; norms and biases do not
  double mean = 0;    // initial values are normal(mean, deviation), constant at deviation 0
  double deviation = 0;
  int split_axis = -1;  // along which tensor parallelism may split it; -1: never

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

// The tensors that backward needs, last in, first out.
class Saved {
 public:
  void push(Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  Tensor pop();  // throws std::logic_error when there is none: backward and forward disagree
  bool empty() const { return tensors_.empty(); }

 private:
  std::vector<Tensor> tensors_;
};

class Unit {
 public:
  explicit Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit() = default;

  const std::string& name() const { return name_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }

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
  // Throws UsageError, naming both, when sequences of this length are too long for the model.
  void check_sequence_length(std::int64_t sequence_length) const;
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  // Every parameter once, in order of first use; names are unique.
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  std::int64_t parameter_count() const;
  // Floating-point operations of forward and backward for one token of a sequence of T: 6 per
  // parameter, plus 12 T C per layer for attention, counted without the causal mask (the convention
  // of PaLM, Chowdhery et al. 2022, appendix B). Recomputation does not count.
  double flops_per_token(std::int64_t sequence_length) const;

  // For the builders in gpt2.h and mlp.h.
  Model(std::string name, DType dtype, std::int64_t vocabulary, std::int64_t context)
      : name_(std::move(name)), dtype_(dtype), vocabulary_(vocabulary), context_(context) {}
  Parameter* add_parameter(Parameter parameter);  // throws std::logic_error when the name is taken
  void add_unit(std::unique_ptr<Unit> unit) { units_.push_back(std::move(unit)); }
  void set_attention(std::int64_t layers, std::int64_t width) {
    attention_layers_ = layers;
    attention_width_ = width;
  }

 private:
  std::string name_;
  DType dtype_;
  std::int64_t vocabulary_;
  std::int64_t context_;
  std::int64_t attention_layers_ = 0;
  std::int64_t attention_width_ = 0;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

// Fills parameter.value with its initial values: a function of seed, name and the element's index,
// so the same for every layout. `first_element` is where value begins within the whole parameter.
void initialize(Backend& backend, const Parameter& parameter, const Tensor& value,
                std::int64_t first_element, std::uint64_t seed);

// --- Presets (presets.cpp) -----------------------------------------------------------------------

// Dimensions of a model; 0 keeps the preset's value.
struct ModelOptions {
  std::string name = "gpt2-tiny";  // gpt2-tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl, mlp
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t hidden = 0;  // of the feed-forward layers; 0: 4 * width
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  // The probability of dropping an element, 0 <= dropout < 1: of the embedding and of every branch
  // that adds to the residual, as GPT-2 does, but not of attention's probabilities, which are
  // never all there; mlp drops of the embedding and of each layer's output.
  double dropout = 0;
  // Compute attention's output and log-sum-exp again in backward instead of saving them (selective
  // recomputation, Korthikanti et al., 2022); the gradients are the same bits.
  bool recompute_attention = false;
};

// Builds the model, without memory for its parameters. Throws UsageError for an unknown name (with
// the nearest), dimensions that are negative, too large or that the model does not have, heads
// that do not divide the width, or a dropout that is no probability below 1.
std::unique_ptr<Model> make_model(const ModelOptions& options, DType dtype);
std::vector<std::string> model_names();

}  // namespace ringworld
