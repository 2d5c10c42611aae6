"""Measures quantised copies of a model: a Markdown table on standard output, and a chart.

    python3 docs/images/quantizing.py SOURCE TEXT.txt [IDS.safetensors] --chart CHART.svg --models NAME=DIR ...

NAME groups models into lines of the chart, such as `Pagella=out/4.0bpw ExLlamaV2=exl2-4.0bpw`. Perplexity
is that of the ids, or of the text without them; divergence is that of the text. Standard library only;
`pagella` is the command in PATH, or what PAGELLA names.
"""

import argparse
import json
import math
import os
import struct
import subprocess
from pathlib import Path

PAGELLA = os.environ.get("PAGELLA", "pagella")
TENSORS = (".q_weight", ".q_scale", ".q_scale_max", ".q_groups", ".q_invperm")
COLORS = ["#2f6f4f", "#b0602a", "#4a5a9a"]


def pagella(*arguments):
    """What the command says with --json."""
    done = subprocess.run([PAGELLA, *map(str, arguments), "--json"], check=True, capture_output=True)
    return json.loads(done.stdout)


def quantized_bits(directory):
    """Bits of all quantised linears, from the headers of the files."""
    total = 0
    for path in sorted(Path(directory).glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, tensor in header.items():
            if name.endswith(TENSORS):
                start, end = tensor["data_offsets"]
                total += 8 * (end - start)
    return total


def measured(options):
    """One row per model, by name and size."""
    rows = []
    for model in options.models:
        name, _, directory = model.partition("=")
        asked = json.loads((Path(directory) / "config.json").read_text())["quantization_config"]["bits"]
        ids = ["--ids", options.ids] if options.ids else ["--text", options.text]
        diff = pagella("diff", options.source, directory, "--text", options.text)
        row = {
            "name": name,
            "asked": asked,
            "bits": quantized_bits(directory),
            "ppl": pagella("ppl", directory, *ids)["ppl"],
            "kl": diff["kl"],
            "top1": diff["top1"],
        }
        rows.append(row)
    return sorted(rows, key=lambda row: (row["asked"], row["name"]))


def table(rows):
    print("| bits per weight | made by | bits of all linears | perplexity | divergence | same likeliest |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['asked']} | {row['name']} | {row['bits']:,} | {row['ppl']:.3f} "
            f"| {row['kl']:.4f} | {100 * row['top1']:.1f} % |"
        )


def chart(rows, path):
    """Divergence over bits per weight, both axes labelled, one line per name."""
    width, height, left, right, top, bottom = 640, 360, 70, 20, 20, 50
    least = math.floor(math.log10(min(row["kl"] for row in rows)))
    most = math.ceil(math.log10(max(row["kl"] for row in rows)))
    low, high = min(row["asked"] for row in rows), max(row["asked"] for row in rows)

    def x(bits):
        return left + (bits - low) / (high - low) * (width - left - right)

    def y(kl):
        return height - bottom - (math.log10(kl) - least) / (most - least) * (height - top - bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for power in range(least, most + 1):
        at = y(10**power)
        parts.append(f'<path d="M{left} {at:.1f}H{width - right}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for bits in sorted({row["asked"] for row in rows}):
        parts.append(f'<text x="{x(bits):.1f}" y="{height - bottom + 20}" text-anchor="middle">{bits:g}</text>')
    for idx, name in enumerate(sorted({row["name"] for row in rows}, reverse=True)):
        own = [row for row in rows if row["name"] == name]
        points = [(x(row["asked"]), y(row["kl"])) for row in own]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        color = COLORS[idx % len(COLORS)]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{color}"/>' for px, py in points]
        parts.append(f'<text x="{width - right}" y="{top + 14 + 18 * idx}" text-anchor="end" fill="{color}">{name}</text>')
    middle = (top + height - bottom) / 2
    parts.append(f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">bits per weight of the layers</text>')
    parts.append(
        f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">'
        "divergence, nats per token</text>"
    )
    parts.append("</svg>\n")
    Path(path).write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("text")
    parser.add_argument("ids", nargs="?")
    parser.add_argument("--chart", required=True)
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=DIR")
    options = parser.parse_args()
    rows = measured(options)
    table(rows)
    chart(rows, options.chart)


if __name__ == "__main__":
    main()
