//! The errors of all layers as a picture that any browser opens: plain SVG, no script, no font.

use std::fmt::Write;

use super::Difference;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
/// Left, right, top and bottom of the axes.
const MARGINS: [f64; 4] = [64.0, 24.0, 48.0, 40.0];
/// Horizontal lines.
const LINES: usize = 4;

/// Draws the relative error after every layer.
pub fn plot(difference: &Difference, names: [&str; 2]) -> String {
    let [left, right, top, bottom] = MARGINS;
    let (width, height) = (WIDTH - left - right, HEIGHT - top - bottom);
    let layers = &difference.layers;
    let largest = layers.iter().copied().fold(0.0, f64::max).max(1e-9);
    let x = |layer: usize| left + width * (layer as f64 + 0.5) / layers.len().max(1) as f64;
    let y = |error: f64| top + height * (1.0 - error / largest);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"20\" font-size=\"14\">{} against {}</text>\n\
         <text x=\"{left}\" y=\"37\" fill=\"#555\">relative error after each layer; divergence {:.4} nats, \
         same likeliest token {:.1} %</text>\n",
        escaped(names[1]),
        escaped(names[0]),
        difference.divergence,
        100.0 * difference.agreement,
    );
    for line in 0..=LINES {
        let error = largest * line as f64 / LINES as f64;
        let at = y(error);
        let end = WIDTH - right;
        let label = left - 8.0;
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{error:.3}</text>\n",
            at + 4.0
        );
    }
    let bar = (0.7 * width / layers.len().max(1) as f64).min(40.0);
    for (layer, error) in layers.iter().enumerate() {
        let (at, base) = (y(*error), top + height);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{at:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"#3465a4\">\
             <title>layer {layer}: {error:.4}</title></rect>",
            x(layer) - bar / 2.0,
            base - at
        );
    }
    let every = layers.len().div_ceil(16).max(1);
    for layer in (0..layers.len()).step_by(every) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{layer}</text>",
            x(layer),
            HEIGHT - 18.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_a_bar_and_names_cannot_break_the_picture() {
        let difference = Difference {
            tokens: 10,
            divergence: 0.1,
            divergence_max: 1.0,
            agreement: 0.9,
            perplexities: [10.0, 11.0],
            layers: vec![0.1, 0.0, 0.4],
        };
        let svg = plot(&difference, ["a<b", "c&d"]);
        assert_eq!(svg.matches("<title>layer").count(), 3);
        assert!(svg.contains("c&amp;d against a&lt;b") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("layer 2: 0.4000"));
    }
}
