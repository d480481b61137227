#include "models/llama.h"

#include <cmath>

#include <fmt/format.h>

#include "models/block.h"
#include "models/embedding.h"
#include "models/head.h"
#include "models/layers.h"
#include "models/norm.h"

namespace ringworld {

std::unique_ptr<Model> make_llama(const ModelOptions& dimensions, DType dtype,
                                  const TensorParallel* tensor) {
  const std::int64_t vocabulary = dimensions.vocabulary;
  const std::int64_t width = dimensions.width;
  const std::int64_t hidden = dimensions.hidden;
  const std::int64_t kv_width = width / dimensions.heads * dimensions.kv_heads;
  const bool tied = dimensions.tied.value();
  auto model =
      std::make_unique<Model>(dimensions.name, dtype, vocabulary, dimensions.context, tensor);
  model->set_width(width);
  model->set_attention(dimensions.layers, width);

  Parameter* table = model->add_parameter({.name = "model.embed_tokens.weight",
                                           .shape = {vocabulary, width},
                                           .deviation = weight_deviation,
                                           .split_axis = 0,
                                           .looked_up = !tied});
  model->add_unit(std::make_unique<Embedding>("embedding", *model, table, nullptr));

  // Two projections of every layer add to the residual; scaled down, their sum keeps its size
  // however many there are.
  const double projection_deviation =
      weight_deviation / std::sqrt(2.0 * static_cast<double>(dimensions.layers));
  const LinearOptions to_residual{
      .deviation = projection_deviation, .split = Split::inputs, .bias = false};
  for (std::int64_t layer = 0; layer < dimensions.layers; ++layer) {
    const std::string name = fmt::format("layers.{}", layer);
    const std::string prefix = fmt::format("model.{}.", name);
    const Norm input_norm = add_rms_norm(*model, prefix + "input_layernorm", width);
    const Linear qkv_proj = add_linear(
        *model, prefix + "self_attn.qkv_proj", width + 2 * kv_width, width,
        {.deviation = weight_deviation, .bias = false, .sections = {width, kv_width, kv_width}});
    const Linear o_proj =
        add_linear(*model, prefix + "self_attn.o_proj", width, width, to_residual);
    const Norm mlp_norm = add_rms_norm(*model, prefix + "post_attention_layernorm", width);
    const Linear gate_up_proj =
        add_linear(*model, prefix + "mlp.gate_up_proj", 2 * hidden, width,
                   {.deviation = weight_deviation, .bias = false, .sections = {hidden, hidden}});
    const Linear down_proj =
        add_linear(*model, prefix + "mlp.down_proj", width, hidden, to_residual);
    model->add_unit(
        std::make_unique<Block>(name, *model, dimensions,
                                BlockLayers{.norm_1 = input_norm,
                                            .qkv = qkv_proj,
                                            .projection = o_proj,
                                            .norm_2 = mlp_norm,
                                            .mlp = {.c_fc = gate_up_proj,
                                                    .c_proj = down_proj,
                                                    .tensor = &model->tensor(),
                                                    .activation = Activation::swiglu}}));
  }

  const Norm norm = add_rms_norm(*model, "model.norm", width);
  const Linear logits = tied ? Linear{.weight = table}
                             : add_linear(*model, "lm_head", vocabulary, width,
                                          {.deviation = weight_deviation, .bias = false});
  model->add_unit(std::make_unique<Head>("head", *model, norm, logits));
  return model;
}

}  // namespace ringworld
