// What charts are drawn with: an SVG page as text, its colours and its words.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ringworld::svg {

inline constexpr std::string_view ink = "#1a1a1a";
inline constexpr std::string_view faint_ink = "#5f6368";
// Hues that colour-blind people can tell apart, as far as there are any (after Okabe and Ito).
inline constexpr std::string_view colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                               "#b8860b", "#7b3fa0", "#56b4e9", "#8c564b"};

// For text and attributes.
std::string escaped(std::string_view text);

// "8 B", "64 KiB"; powers of two have no fraction.
std::string size_label(double bytes);

class Page {
 public:
  // In pixels. The title stands at `left`, the subtitle below it, on white.
  Page(double width, double height, double left, std::string_view title, std::string_view subtitle);

  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
  }
  // `anchor` is start, middle or end; `more` further attributes, with a blank before each.
  void words(double x, double y, std::string_view anchor, double size, std::string_view colour,
             std::string_view content, std::string_view more = "");
  void line(double x1, double y1, double x2, double y2, std::string_view colour,
            std::string_view more = "");

  // The whole page; nothing is added after it.
  std::string finish();

 private:
  std::string text_;
};

}  // namespace ringworld::svg
