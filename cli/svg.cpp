#include "cli/svg.h"

namespace ringworld::svg {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string size_label(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

Page::Page(double width, double height, double left, std::string_view title,
           std::string_view subtitle) {
  add("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"Helvetica, Arial, sans-serif\">\n"
      "<title>{2}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      width, height, escaped(title));
  words(left, 32, "start", 19, ink, title, " font-weight=\"bold\"");
  words(left, 54, "start", 12.5, faint_ink, subtitle);
}

void Page::words(double x, double y, std::string_view anchor, double size, std::string_view colour,
                 std::string_view content, std::string_view more) {
  add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\"{}>{}"
      "</text>\n",
      x, y, anchor, size, colour, more, escaped(content));
}

void Page::line(double x1, double y1, double x2, double y2, std::string_view colour,
                std::string_view more) {
  add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"{}/>\n", x1, y1,
      x2, y2, colour, more);
}

std::string Page::finish() {
  text_ += "</svg>\n";
  return std::move(text_);
}

}  // namespace ringworld::svg
