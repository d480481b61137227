#include "cli/shard_page.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cli/shard_groups.h"
#include "cli/svg.h"

namespace ringworld {
namespace {

// In pixels.
constexpr double side = 22;
constexpr double gap = 4;
constexpr double cell_width = 3 * side + 2 * gap;

std::string_view colour_of(ModelState state) {
  return svg::colours[static_cast<std::size_t>(state)];
}

// A rectangle of the tensor, as fractions of it.
struct Box {
  double left = 0;
  double right = 1;
  double top = 0;
  double bottom = 1;
};

// Where the rank holds elements. Of a row that it has in part, as large a part of its height.
std::vector<Box> boxes_of(const RankPart& part, const Range& held) {
  const Parameter& p = part.parameter;
  const auto elements = static_cast<double>(p.shape.elements());
  const double first = static_cast<double>(held.first) / elements;
  const double end = static_cast<double>(held.first + held.count) / elements;
  if (held.count == 0) {
    return {};
  }
  if (p.parts.empty()) {
    return {{.top = first, .bottom = end}};
  }
  const auto whole = static_cast<double>(p.whole_shape[p.split_axis]);
  const auto own = static_cast<double>(p.shape[p.split_axis]);
  std::vector<Box> boxes;
  double before = 0;  // of the own axis
  for (const Part& run : p.parts) {
    const auto at = static_cast<double>(run.first);
    const auto count = static_cast<double>(run.count);
    if (p.split_axis > 0) {
      boxes.push_back(
          {.left = at / whole, .right = (at + count) / whole, .top = first, .bottom = end});
    } else {
      const double begin = std::max(first * own, before) - before;
      const double stop = std::min(end * own, before + count) - before;
      if (begin < stop) {
        boxes.push_back({.top = (at + begin) / whole, .bottom = (at + stop) / whole});
      }
    }
    before += count;
  }
  return boxes;
}

std::string cell(const ShardMap& map, const MappedTensor& tensor, const RankPart& part) {
  std::string drawing;
  std::string words;
  double x = 0;
  for (const ModelState state : all_model_states) {
    const Range& held = part.held[state];
    fmt::format_to(std::back_inserter(drawing),
                   "<rect x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\" fill=\"#eef0f2\"/>", x, side,
                   side);
    for (const Box& box : boxes_of(part, held)) {
      fmt::format_to(
          std::back_inserter(drawing),
          "<rect class=\"held\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
          "fill=\"{}\"/>",
          x + box.left * side, box.top * side, (box.right - box.left) * side,
          std::max(0.5, (box.bottom - box.top) * side), colour_of(state));
    }
    words += fmt::format("{}{}: {}, {}", words.empty() ? "" : "; ", name_of(state),
                         slice_text(tensor, part, held),
                         to_string(held.count * map.element_bytes[state]));
    x += side + gap;
  }
  return fmt::format("<td><svg width=\"{}\" height=\"{}\"><title>rank {}: {}</title>{}</svg></td>",
                     cell_width, side, part.rank, svg::escaped(words), drawing);
}

}  // namespace

std::string to_html(const ShardMap& map, std::string_view title) {
  const std::string escaped_title = svg::escaped(title);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>{0}</title>\n"
      "<style>body {{ font-family: sans-serif; color: {1}; margin: 24px; }} "
      "table {{ border-collapse: collapse; }} td, th {{ padding: 3px 8px; text-align: left; "
      "font-weight: normal; font-size: 13px; white-space: nowrap; }} "
      "thead th {{ position: sticky; top: 0; background: #ffffff; }} "
      ".shape {{ color: {2}; }}</style></head>\n<body><h1>{0}</h1>\n<p>",
      escaped_title, svg::ink, svg::faint_ink);
  for (const ModelState state : all_model_states) {
    page += fmt::format(
        "<svg width=\"14\" height=\"14\"><rect width=\"14\" height=\"14\" fill=\"{}\"/></svg> {} "
        "&#160; ",
        colour_of(state), name_of(state));
  }
  page +=
      "</p>\n<p>Each box is a whole tensor, first axis down, second across; filled is what the "
      "rank "
      "holds between steps. The pointer over it tells more.</p>\n"
      "<table><thead><tr><th>tensor</th><th>shape</th>";
  for (std::size_t rank = 0; rank < map.charged.size(); ++rank) {
    const OfStates<Bytes>& bytes = map.charged[rank];
    page += fmt::format("<th>rank {}<br/><span class=\"shape\">{}</span></th>", rank,
                        to_string(bytes[ModelState::parameters] + bytes[ModelState::gradients] +
                                  bytes[ModelState::optimizer]));
  }
  page += "</tr></thead>\n<tbody>\n";
  for (const FoldedTensor& folded : fold_layers(map, 0)) {
    const MappedTensor& tensor = map.tensors[folded.first];
    page += fmt::format("<tr><th>{}</th><td class=\"shape\">{}</td>", svg::escaped(folded.name),
                        to_string(tensor.shape));
    auto part = tensor.parts.begin();
    for (int rank = 0; rank < static_cast<int>(map.charged.size()); ++rank) {
      if (part != tensor.parts.end() && part->rank == rank) {
        page += cell(map, tensor, *part++);
      } else {
        page += "<td></td>";
      }
    }
    page += "</tr>\n";
  }
  return page + "</tbody></table></body></html>\n";
}

}  // namespace ringworld
