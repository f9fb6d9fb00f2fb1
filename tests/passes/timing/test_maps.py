"""Maps of convolutions: which of them cross the edge of the chip, and what each of them takes."""

from __future__ import annotations

import pytest

from samba_onnx.passes.targets import load_target
from samba_onnx.passes.timing.maps import crossing_maps, positions
from samba_onnx.passes.timing.section_terms import section_terms
from tests.passes.planning.plan_samples import parse

ALONE = """g (bfloat16[4,8,14,14] x, bfloat16[16,8,3,3] w) => (bfloat16[4,16,14,14] y) {
    y = Conv <pads = [1, 1, 1, 1]> (x, w)
}"""
GRADIENT = """g (bfloat16[4,8,14,14] x, bfloat16[4,16,12,12] d) => (bfloat16[8,16,3,3] y)
    <bfloat16[8,4,14,14] a, bfloat16[16,4,12,12] b> {
    a = Transpose <perm = [1, 0, 2, 3]> (x)
    b = Transpose <perm = [1, 0, 2, 3]> (d)
    y = Conv (a, b)
}"""
CHAIN = """g (bfloat16[4,8,14,14] x, bfloat16[16,8,1,1] w, bfloat16[32,16,1,1] v) => (bfloat16[4,32,14,14] y)
    <bfloat16[4,16,14,14] a, bfloat16[4,16,14,14] b> {
    a = Conv (x, w)
    b = Relu (a)
    y = Conv (b, v)
}"""


@pytest.mark.parametrize(
    ("text", "maps", "places"),
    [
        (ALONE, 4 * 8 + 4 * 16, [14 * 14]),
        # The gradient of a weight reads two activations; it is no map itself.
        (GRADIENT, 4 * 8 + 4 * 16, [0, 0, 12 * 12]),
        # What stays on the chip crosses nothing.
        (CHAIN, 4 * 8 + 4 * 32, [14 * 14, 0, 14 * 14]),
        # Of a map of unknown size nothing is known.
        (
            "g (float[n,8,c,c] x, float[4,8,3,3] w) => (float[n,4,c,c] y) { y = Conv (x, w) }",
            0,
            [0],
        ),
        ("g (float[4,8] a, float[8,4] b) => (float[4,4] y) { y = MatMul (a, b) }", 0, [0]),
    ],
)
def test_maps_that_cross_and_places_that_the_first_image_passes(
    text: str, maps: int, places: list[int]
) -> None:
    nodes = list(parse(text).graph)
    assert crossing_maps(nodes) == maps
    assert [positions(node) for node in nodes] == places


def test_what_is_read_twice_crosses_once() -> None:
    text = """g (bfloat16[4,8,14,14] x, bfloat16[8,8,1,1] w) => (bfloat16[4,8,14,14] y, bfloat16[4,8,14,14] z) {
        y = Conv (x, w)
        z = Conv (x, w)
    }"""
    assert crossing_maps(list(parse(text).graph)) == 3 * 4 * 8


def test_every_map_and_every_place_takes_its_time() -> None:
    target = load_target("sn10").summary
    timing = target.timing
    assert timing is not None
    nodes = list(parse(CHAIN).graph)
    terms = section_terms(nodes, {"ddr": [100]}, target)
    time = terms.time(target)
    assert time.off_chip == pytest.approx(160 * timing.map_seconds, rel=1e-3)
    assert time.fill == 3 * timing.fill_seconds + 2 * 14 * 14 * timing.position_seconds
