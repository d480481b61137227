#include "models/gpt2.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/block.h"
#include "models/embedding.h"
#include "models/head.h"
#include "models/layers.h"
#include "models/norm.h"

namespace ringworld {

std::unique_ptr<Model> make_gpt2(const ModelOptions& dimensions, DType dtype,
                                 const TensorParallel* tensor) {
  const std::int64_t width = dimensions.width;
  const std::int64_t hidden = dimensions.hidden;
  auto model = std::make_unique<Model>(dimensions.name, dtype, dimensions.vocabulary,
                                       dimensions.context, tensor);
  model->set_width(width);
  model->set_attention(dimensions.layers, width);

  Parameter* wte = model->add_parameter({.name = "wte.weight",
                                         .shape = {dimensions.vocabulary, width},
                                         .deviation = weight_deviation,
                                         .split_axis = 0});
  Parameter* wpe = model->add_parameter(
      {.name = "wpe.weight", .shape = {dimensions.context, width}, .deviation = weight_deviation});
  model->add_unit(std::make_unique<Embedding>("embedding", *model, wte, wpe, dimensions.dropout));

  // Two projections of every layer add to the residual; scaled down, their sum keeps its size
  // however many there are.
  const double projection_deviation =
      weight_deviation / std::sqrt(2.0 * static_cast<double>(dimensions.layers));
  for (std::int64_t layer = 0; layer < dimensions.layers; ++layer) {
    const std::string name = fmt::format("h.{}", layer);
    const Norm ln_1 = add_layer_norm(*model, name + ".ln_1", width);
    const Linear c_attn =
        add_linear(*model, name + ".attn.c_attn", 3 * width, width,
                   {.deviation = weight_deviation, .sections = {width, width, width}});
    const Linear c_proj = add_linear(*model, name + ".attn.c_proj", width, width,
                                     {.deviation = projection_deviation, .split = Split::inputs});
    const Norm ln_2 = add_layer_norm(*model, name + ".ln_2", width);
    const Linear mlp_c_fc =
        add_linear(*model, name + ".mlp.c_fc", hidden, width, {.deviation = weight_deviation});
    const Linear mlp_c_proj =
        add_linear(*model, name + ".mlp.c_proj", width, hidden,
                   {.deviation = projection_deviation, .split = Split::inputs});
    model->add_unit(std::make_unique<Block>(
        name, *model, dimensions,
        BlockLayers{.norm_1 = ln_1,
                    .qkv = c_attn,
                    .projection = c_proj,
                    .norm_2 = ln_2,
                    .mlp = {.c_fc = mlp_c_fc, .c_proj = mlp_c_proj, .tensor = &model->tensor()}}));
  }

  const Norm ln_f = add_layer_norm(*model, "ln_f", width);
  model->add_unit(std::make_unique<Head>("head", *model, ln_f, Linear{.weight = wte}));
  return model;
}

}  // namespace ringworld
