"""`pipeline(task, model=..., device="neuron")` of every task, on tiny random models with tokenizers and processors made here: what comes out is what `device="cpu"`
gives, text and labels exactly, numbers to 1e-4.

For `device=0`, or none at all, Transformers goes through a list of devices of its own, and torch_neuronx/patches/transformers.py sees to its end. Of the tasks,
"video-classification" needs PyAV, "mask-generation" and "any-to-any" torchvision, which are not among the packages; their models are in test_classes.py."""

import copy
import json
import threading

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from test_classes import CONV, RESNET, SWIN4, sizes
from tiny import configure
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import pipeline

SPECIAL = dict(pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
WORDS = "The quick brown fox jumps over the lazy dog"


def tokenizer(pairs=False, extra=(), words=None, **options):
    """Bytes are tokens (with `words`: words are); with pairs, sequences are put between [CLS] and [SEP] as BERT's are."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if words:
        tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(dict.fromkeys(["<unk>", *words.split()]))}, "<unk>"))
        tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        tokens = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
        tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, model_max_length=64, **SPECIAL, **options)
    fast.add_tokens(list(extra))
    if pairs:
        ids = [("[CLS]", fast.cls_token_id), ("[SEP]", fast.sep_token_id)]
        fast._tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)
    return fast


def build(name, tokens=None, **values):
    """A model of the class, weights from seed 0, large enough that the outputs differ."""
    kind = getattr(transformers, name)
    if tokens is not None:
        ids = {f"{n}_token_id": getattr(tokens, f"{n}_token_id") for n in ("pad", "bos", "eos")}
        values = dict(vocab_size=len(tokens)) | ids | values
    torch.manual_seed(0)
    return kind(configure(kind.config_class, values, sizes)).eval()


def picture(seed=0, size=(48, 40)):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*size[::-1], 3), dtype=np.uint8))


def sound(seconds=0.2, seed=0, rate=16000):
    """Two tones and noise."""
    t = np.arange(int(seconds * rate)) / rate
    return (np.sin(2000 * t) + 0.5 * np.sin(5000 * t) + 0.1 * np.random.default_rng(seed).standard_normal(len(t))).astype(np.float32)


def same(got, want, where="result", tolerance=1e-4):
    """Nested results: text, labels and whole numbers exactly, other numbers to the tolerance of the largest, pictures by their pixels."""
    if isinstance(want, Image.Image):
        got, want = np.asarray(got), np.asarray(want)
    if isinstance(want, dict) or hasattr(want, "keys"):
        assert list(got.keys()) == list(want.keys()), where
        for key in want.keys():
            same(got[key], want[key], f"{where}[{key!r}]", tolerance)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), where
        for i, (g, w) in enumerate(zip(got, want)):
            same(g, w, f"{where}[{i}]", tolerance)
    elif isinstance(want, (np.ndarray, torch.Tensor)):
        got, want = (torch.tensor(x) if isinstance(x, np.ndarray) else x.detach().cpu() for x in (got, want))
        assert got.shape == want.shape and got.dtype == want.dtype, where
        if want.dtype == torch.uint8:  # pixels are rounded
            assert (got.int() - want.int()).abs().max() <= 1, where
        elif want.is_floating_point():
            torch.testing.assert_close(got, want, rtol=0, atol=tolerance * max(1e-3, want.abs().max().item()), msg=lambda m: f"{where}: {m}")
        else:
            assert torch.equal(got, want), where
    elif isinstance(want, float):
        assert got == pytest.approx(want, rel=10 * tolerance, abs=tolerance), where
    else:
        assert got == want, where


def run(task, model, *calls, prepare=None, **parts):
    """Each call on both devices."""
    pipes = {}
    for device in ("cpu", "neuron"):
        pipes[device] = pipeline(task, model=copy.deepcopy(model), device=device, **parts)
        assert {p.device.type for p in pipes[device].model.parameters()} == {device}
    answers = []
    for args, options in calls:
        want, got = (list(r) if hasattr(r, "__next__") else r for r in (pipes[d](*args, **options) for d in ("cpu", "neuron")))
        same(got, want, task)
        answers.append(want)
    assert torch.neuron.fallback_counts() == {}
    return answers


def call(*args, **options):
    return args, options


# ------------------------------------------------------------------------------------------------------------------------------ text


@pytest.fixture(scope="module")
def chatter():
    tokens = tokenizer(padding_side="left")
    tokens.chat_template = TEMPLATE
    return build("LlamaForCausalLM", tokens, initializer_range=0.4, max_position_embeddings=256), tokens


def turns(*texts):
    return [dict(role=role, content=text) for role, text in zip(("system", "user", "assistant", "user"), texts)]


def test_text_generation(chatter):
    model, tokens = chatter
    short = dict(max_new_tokens=8, do_sample=False)
    two = [WORDS, "A"]
    one, *_ = run(
        "text-generation", model,
        call(WORDS, **short), call(two, **short), call(two, batch_size=2, **short), call(WORDS, return_full_text=False, **short),
        call(WORDS, num_beams=3, num_return_sequences=2, **short), call(WORDS, return_tensors=True, **short), call(WORDS, stop_sequence="e", **short),
        call(turns("Be brief.", "Hello"), **short), call([turns("a", "b"), turns("c", "d", "e", "f")], batch_size=2, **short),
        call(turns("Be brief.", "Hello", "And"), continue_final_message=True, **short), call(WORDS, prefix="Once ", repetition_penalty=1.5, **short),
        call(WORDS, cache_implementation="static", **short), tokenizer=tokens)
    assert one[0]["generated_text"].startswith(WORDS) and len(one[0]["generated_text"]) > len(WORDS)


def test_text_generation_from_a_folder(chatter, tmp_path):
    """By path and by `device_map`; in half precision."""
    model, tokens = chatter
    model.save_pretrained(tmp_path)
    tokens.save_pretrained(tmp_path)
    options = dict(max_new_tokens=8, do_sample=False)
    want = pipeline("text-generation", model=str(tmp_path), device="cpu")(WORDS, **options)
    named = dict(device="neuron"), dict(device=torch.device("neuron:0")), dict(device_map="neuron")
    for where in (*named, {}, dict(device=0), dict(device_map=0), dict(device_map={"": 0}), dict(device_map="auto")):
        pipe = pipeline("text-generation", model=str(tmp_path), **where)
        assert pipe.device == torch.device("neuron:0") or where == dict(device="neuron")
        assert pipe(WORDS, **options) == want
    assert pipeline("text-generation", model=str(tmp_path), device=-1).device == torch.device("cpu")
    low = pipeline("text-generation", model=str(tmp_path), device="neuron", dtype=torch.bfloat16)
    assert low.model.dtype == torch.bfloat16 and low(WORDS, **options)[0]["generated_text"].startswith(WORDS)


def test_devices_by_number(chatter, tmp_path, run_python):
    model, tokens = chatter
    model.save_pretrained(tmp_path)
    tokens.save_pretrained(tmp_path)
    out = run_python(
        "import torch, transformers\n"
        f"for where in (dict(device=1), {{}}, dict(device_map=1), dict(device='neuron:1')):\n"
        f"    pipe = transformers.pipeline('text-generation', model={str(tmp_path)!r}, **where)\n"
        "    print(pipe.device, pipe.model.device, len(pipe('The', max_new_tokens=2)))",
        NEURON_RT_NUM_CORES="2",
    )
    assert out.splitlines() == ["neuron:1 neuron:1 1", "neuron:0 neuron:0 1", "neuron:1 neuron:1 1", "neuron:1 neuron:1 1"]


def test_text_generation_streams(chatter):
    model, tokens = chatter
    pipe = pipeline("text-generation", model=copy.deepcopy(model), tokenizer=tokens, device="neuron")
    streamer = transformers.TextIteratorStreamer(tokens, skip_prompt=True, skip_special_tokens=True, timeout=120)
    result = []
    options = dict(max_new_tokens=12, do_sample=False, return_full_text=False)
    worker = threading.Thread(target=lambda: result.extend(pipe(WORDS, streamer=streamer, **options)))
    worker.start()
    streamed = "".join(streamer)
    worker.join()
    assert streamed == result[0]["generated_text"] == pipeline("text-generation", model=model, tokenizer=tokens, device="cpu")(WORDS, **options)[0]["generated_text"]


def test_text_generation_assisted(chatter):
    model, tokens = chatter
    run("text-generation", model, call(WORDS, max_new_tokens=8, do_sample=False), tokenizer=tokens, assistant_model=copy.deepcopy(model))


def test_sampling_pipeline_repeats_itself(chatter):
    model, tokens = chatter
    pipe = pipeline("text-generation", model=copy.deepcopy(model), tokenizer=tokens, device="neuron")

    def draw(seed):
        transformers.set_seed(seed)
        return pipe(WORDS, max_new_tokens=12, do_sample=True)[0]["generated_text"]

    assert draw(1) == draw(1) != draw(2)


def test_fill_mask():
    tokens = tokenizer(pairs=True)
    text = "The [MASK]uick brown"
    run("fill-mask", build("BertForMaskedLM", tokens), call(text), call(text, top_k=3, targets=["a", "b", "q"]), call([text, "a[MASK]b[MASK]c"], batch_size=2),
        tokenizer=tokens)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "ModernBertForSequenceClassification", "LlamaForSequenceClassification"])
def test_text_classification(kind):
    tokens = tokenizer(pairs="Llama" not in kind)
    texts = [WORDS, "short", "of another length"]
    run("text-classification", build(kind, tokens, num_labels=3), call(WORDS), call(texts, top_k=None),
        call(texts, batch_size=3, top_k=2, padding=True, truncation=True), call(WORDS, function_to_apply="sigmoid"),
        call(WORDS, function_to_apply="none"), call(dict(text="one", text_pair="two"), top_k=None), tokenizer=tokens)


def test_text_classification_in_a_dataset():
    """A Dataset by KeyDataset, in batches and with workers, as the documentation shows for throughput on a GPU."""
    from datasets import Dataset
    from transformers.pipelines.pt_utils import KeyDataset

    tokens = tokenizer(pairs=True)
    rows = Dataset.from_list([dict(text=WORDS[: 3 * i + 3]) for i in range(9)])
    texts = KeyDataset(rows, "text")
    run("text-classification", build("BertForSequenceClassification", tokens), call(texts, batch_size=4), call(texts, num_workers=2), tokenizer=tokens)


def test_token_classification():
    tokens = tokenizer(pairs=True, words=WORDS)
    labels = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    model = build("BertForTokenClassification", tokens, id2label=labels, initializer_range=0.4)
    run("token-classification", model, call(WORDS), *(call(WORDS, aggregation_strategy=s) for s in ("simple", "first", "average", "max")),
        call([WORDS, "brown fox"], aggregation_strategy="simple", batch_size=2), call(WORDS, aggregation_strategy="simple", stride=2), tokenizer=tokens)


def test_feature_extraction():
    tokens = tokenizer(pairs=True)
    run("feature-extraction", build("BertModel", tokens), call(WORDS), call([WORDS, "b"], return_tensors=True), call([WORDS, "b"], batch_size=2), tokenizer=tokens)


def test_zero_shot_classification():
    tokens = tokenizer(pairs=True)
    names = ["contradiction", "neutral", "entailment"]
    model = build("BertForSequenceClassification", tokens, id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)})
    labels = ["politics", "health", "sport"]
    run("zero-shot-classification", model, call(WORDS, candidate_labels=labels), call(WORDS, candidate_labels=labels, multi_label=True),
        call([WORDS, "no"], candidate_labels=labels, hypothesis_template="It is {}."), tokenizer=tokens)


def test_decision():
    """A chat model's logits for one-letter answers."""
    tokens = tokenizer(words=WORDS + " Yes No A B C D")
    tokens.chat_template = TEMPLATE
    model = build("Qwen2ForCausalLM", tokens, initializer_range=0.4, max_position_embeddings=512)
    request = dict(state=WORDS, questions=dict(quick=dict(type="noul", instructions="Is it quick?"), who=dict(type="choice", criteria=dict(fox=None, dog="lazy")),
                                               rank=dict(type="score", criteria=["quick", "lazy"])))
    run("decision", model, call(request), tokenizer=tokens)


def test_table_question_answering(tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EMPTY]", *"how many people live in paris rome city inhabitants 1 2 3 ?".split()]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    tokens = transformers.TapasTokenizer(tmp_path / "vocab.txt", model_max_length=64)
    model = build("TapasForQuestionAnswering", type_vocab_sizes=[3, 256, 256, 2, 256, 256, 10], max_position_embeddings=128, num_aggregation_labels=4,
                  aggregation_labels={0: "NONE", 1: "SUM", 2: "AVERAGE", 3: "COUNT"}, average_logits_per_cell=True)
    table = dict(city=["paris", "rome"], inhabitants=["2", "3"])
    run("table-question-answering", model, call(table=table, query="how many people live in rome ?"), call(table=table, query=["paris ?", "how many ?"]),
        tokenizer=tokens)


# ---------------------------------------------------------------------------------------------------------------------------- pictures

SQUARE = dict(size=dict(height=32, width=32))


def test_image_classification():
    processor = transformers.ViTImageProcessor(**SQUARE)
    two = [picture(), picture(1)]
    run("image-classification", build("ViTForImageClassification", num_labels=7), call(two[0]), call(two, top_k=2),
        call(two, batch_size=2, function_to_apply="none"), image_processor=processor)


def test_image_feature_extraction():
    run("image-feature-extraction", build("ViTModel"), call(picture()), call([picture(), picture(1)], pool=True, return_tensors=True),
        image_processor=transformers.ViTImageProcessor(**SQUARE))


def test_object_detection():
    model = build("DetrForObjectDetection", backbone_config=RESNET, num_queries=6, num_labels=5)
    processor = transformers.DetrImageProcessor(size=dict(shortest_edge=64, longest_edge=64))
    answer, *_ = run("object-detection", model, call(picture(), threshold=0.05), call([picture(), picture(1)], threshold=0.0), image_processor=processor)
    assert answer


SEGMENTATION = {
    "semantic": ("SegformerForSemanticSegmentation", "SegformerImageProcessor", dict(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[2, 2], num_attention_heads=[1, 2],
        mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=4)),
    "panoptic": ("MaskFormerForInstanceSegmentation", "MaskFormerImageProcessor", dict(
        backbone_config=SWIN4, decoder_config=dict(model_type="detr", num_queries=6, d_model=16, encoder_layers=1, decoder_layers=1), fpn_feature_size=32,
        mask_feature_size=16, num_labels=4)),
}


@pytest.mark.parametrize("task", SEGMENTATION)
def test_image_segmentation(task):
    kind, processor, values = SEGMENTATION[task]
    processor = getattr(transformers, processor)(size=dict(height=64, width=64))
    calls = [call(picture(), subtask="semantic")]
    if task == "panoptic":
        calls += [call(picture(), subtask=s, threshold=0.1, mask_threshold=0.3, overlap_mask_area_threshold=0.1) for s in ("panoptic", "instance")]
    answer, *_ = run("image-segmentation", build(kind, **values), *calls, image_processor=processor)
    assert answer[0]["mask"].size == picture().size


def test_depth_estimation():
    model = build("DPTForDepthEstimation", num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8] * 4, fusion_hidden_size=8, is_hybrid=False,
                  backbone_config=None)
    answer, _ = run("depth-estimation", model, call(picture()), call([picture(), picture(1)], batch_size=2),
                    image_processor=transformers.DPTImageProcessor(**SQUARE))
    assert answer["depth"].size == picture().size


def test_keypoint_matching():
    detector = dict(model_type="superpoint", encoder_hidden_sizes=[8, 8, 8, 8], decoder_hidden_size=8, descriptor_decoder_dim=16, keypoint_threshold=0.0,
                    max_keypoints=24)
    model = build("SuperGlueForKeypointMatching", keypoint_detector_config=detector, hidden_size=16, keypoint_encoder_sizes=[8, 8],
                  gnn_layers_types=["self", "cross"], sinkhorn_iterations=5, num_attention_heads=2, matching_threshold=0.0)
    answer, = run("keypoint-matching", model, call([picture(), picture(1)], threshold=0.0),
                  image_processor=transformers.SuperGlueImageProcessor(size=dict(height=64, width=64)))
    assert answer is not None


# ------------------------------------------------------------------------------------------------------------------- pictures with text


def test_zero_shot_image_classification():
    tokens = tokenizer(pairs=True)
    model = build("CLIPModel", text_config=dict(vocab_size=len(tokens), eos_token_id=tokens.sep_token_id, initializer_range=0.4), vision_config={})
    labels = ["a fox", "a lazy dog", "nothing"]
    run("zero-shot-image-classification", model, call(picture(), candidate_labels=labels), call([picture(), picture(1)], candidate_labels=labels), tokenizer=tokens,
        image_processor=transformers.CLIPImageProcessor(size=dict(shortest_edge=32), crop_size=dict(height=32, width=32)))


def test_zero_shot_object_detection():
    tokens = tokenizer(pairs=True)
    tokens.model_max_length = 16
    model = build("OwlViTForObjectDetection", text_config=dict(vocab_size=len(tokens), max_position_embeddings=16), vision_config={})
    answer, *_ = run("zero-shot-object-detection", model, call(picture(), candidate_labels=["fox", "dog"], threshold=0.0), tokenizer=tokens,
                     image_processor=transformers.OwlViTImageProcessor(**SQUARE))
    assert answer


def test_image_text_to_text():
    tokens = tokenizer(extra=["<image>"], padding_side="left")
    tokens.image_token = "<image>"
    image_token = tokens.convert_tokens_to_ids("<image>")
    template = ("{% for m in messages %}{{ m['role'] }}: "
                "{% for c in m['content'] %}{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }}{% endif %}{% endfor %}\n"
                "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")
    model = build("LlavaForConditionalGeneration", text_config=dict(model_type="llama", vocab_size=len(tokens), initializer_range=0.4),
                  image_token_index=image_token, vision_config=dict(model_type="clip_vision_model"), vision_feature_layer=-1)
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(size=dict(shortest_edge=32), crop_size=dict(height=32, width=32)), tokens, patch_size=8,
        vision_feature_select_strategy="default", chat_template=template, num_additional_image_tokens=1)
    chat = [dict(role="user", content=[dict(type="image", image=picture()), dict(type="text", text="What is this?")])]
    short = dict(max_new_tokens=6, generate_kwargs=dict(do_sample=False))
    run("image-text-to-text", model, call(text=chat, **short), call(text=chat, return_full_text=False, **short), call(text=[chat, chat], batch_size=2, **short),
        call(images=picture(), text="<image>Well?", **short), processor=processor)


def test_document_question_answering():
    tokens = tokenizer(pairs=True, words="invoice number 17 total 5 what is the ?")
    model = build("LayoutLMForQuestionAnswering", tokens, max_2d_position_embeddings=1024, max_position_embeddings=128, initializer_range=0.4)
    words = [("invoice", [10, 10, 60, 20]), ("number", [70, 10, 100, 20]), ("17", [110, 10, 130, 20]), ("total", [10, 40, 60, 50]), ("5", [70, 40, 80, 50])]
    run("document-question-answering", model, call(dict(image=picture(), question="what is the number ?", word_boxes=words)),
        call(dict(image=picture(), question="what is the total ?", word_boxes=words), top_k=3), tokenizer=tokens)


# ------------------------------------------------------------------------------------------------------------------------------- sound

WAV2VEC = transformers.Wav2Vec2FeatureExtractor


def test_audio_classification():
    run("audio-classification", build("Wav2Vec2ForSequenceClassification", **CONV, num_labels=6), call(sound()),
        call([sound(), sound(0.1, 1)], batch_size=2, top_k=None),
        call(dict(raw=sound(), sampling_rate=16000), top_k=2, function_to_apply="sigmoid"), feature_extractor=WAV2VEC(return_attention_mask=True))


def test_audio_classification_of_spectrograms():
    model = build("ASTForAudioClassification", max_length=32, num_mel_bins=16, frequency_stride=4, time_stride=4, num_labels=6)
    run("audio-classification", model, call(sound(0.4), top_k=None), feature_extractor=transformers.ASTFeatureExtractor(num_mel_bins=16, max_length=32))


@pytest.fixture
def letters(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({c: i for i, c in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz"])}))
    return transformers.Wav2Vec2CTCTokenizer(tmp_path / "vocab.json")


def test_speech_recognition_ctc(letters):
    model = build("Wav2Vec2ForCTC", **CONV, vocab_size=len(letters), initializer_range=0.4, feat_extract_norm="layer")
    run("automatic-speech-recognition", model, call(sound()), call([sound(), sound(0.1, 1)], batch_size=2), call(sound(), return_timestamps="char"),
        call(sound(), return_timestamps="word"), call(sound(0.5), chunk_length_s=0.2, stride_length_s=0.05, batch_size=2), tokenizer=letters,
        feature_extractor=WAV2VEC())


def whisper():
    special = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>",
             "<|notimestamps|>", *(f"<|{i * 0.02:.2f}|>" for i in range(51))]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = transformers.WhisperTokenizer(vocab={c: i for i, c in enumerate([*alphabet, *special])}, merges=[], language="en", task="transcribe",
                                           pad_token="<|endoftext|>")
    tokens.add_tokens(special, special_tokens=True)
    at = tokens.convert_tokens_to_ids
    ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), at("<|endoftext|>"))
    model = build("WhisperForConditionalGeneration", vocab_size=len(tokens), num_mel_bins=16, max_source_positions=50, max_target_positions=64, init_std=0.4,
                  decoder_start_token_id=at("<|startoftranscript|>"), **ends)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=at("<|startoftranscript|>"), no_timestamps_token_id=at("<|notimestamps|>"), is_multilingual=True,
        prev_sot_token_id=at("<|startofprev|>"), lang_to_id={"<|en|>": at("<|en|>"), "<|de|>": at("<|de|>")},
        task_to_id=dict(transcribe=at("<|transcribe|>"), translate=at("<|translate|>")),
        max_initial_timestamp_index=10, max_length=32, alignment_heads=[[0, 0], [1, 1]], **ends)
    return model, dict(tokenizer=tokens, feature_extractor=transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1))


def test_speech_recognition_whisper():
    model, parts = whisper()
    run("automatic-speech-recognition", model, call(sound(0.5)),
        call([sound(0.5), sound(0.3, 1)], batch_size=2, generate_kwargs=dict(language="en", task="translate")),
        call(sound(0.5), return_timestamps=True), call(sound(0.5), return_timestamps="word"), call(sound(2.5), return_timestamps=True),
        call(sound(2.5), chunk_length_s=1, batch_size=2),
        call(sound(0.5), generate_kwargs=dict(num_beams=2, max_new_tokens=8)), **parts)


def test_zero_shot_audio_classification():
    tokens = tokenizer()
    model = build("ClapModel", text_config=dict(vocab_size=len(tokens), projection_dim=32), audio_config=dict(
        spec_size=64, num_mel_bins=16, hidden_size=32, patch_size=4, patch_stride=[4, 4], depths=[1, 1], num_attention_heads=[2, 2], window_size=4,
        patch_embeds_hidden_size=16, enable_fusion=False))
    extractor = transformers.ClapFeatureExtractor(feature_size=16, max_length_s=1, truncation="rand_trunc", padding="repeatpad")
    run("zero-shot-audio-classification", model, call(sound(0.5, rate=48000), candidate_labels=["a dog", "a fox"]), tokenizer=tokens, feature_extractor=extractor)


def test_text_to_audio(tmp_path):
    """VITS speaks, MusicGen plays: no noise, the likeliest token."""
    (tmp_path / "vocab.json").write_text(json.dumps({c: i for i, c in enumerate(" abcdefghijklmnopqrstuvwxyz")} | {"<pad>": 27, "<unk>": 28}))
    tokens = transformers.VitsTokenizer(tmp_path / "vocab.json", phonemize=False, normalize=True, is_uroman=False)
    model = build("VitsModel", vocab_size=len(tokens), flow_size=16, spectrogram_bins=9, ffn_dim=32, prior_encoder_num_flows=2,
                  posterior_encoder_num_wavenet_layers=2, prior_encoder_num_wavenet_layers=2, duration_predictor_filter_channels=8, depth_separable_channels=2,
                  upsample_initial_channel=16, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]],
                  noise_scale=0.0, noise_scale_duration=0.0, use_stochastic_duration_prediction=False)
    answer, *_ = run("text-to-audio", model, call("a quick fox"), call(["a quick fox", "dog"]), tokenizer=tokens)
    assert answer["audio"].size > 100

    tokens = tokenizer()
    model = build("MusicgenForConditionalGeneration", text_encoder=dict(model_type="t5", vocab_size=len(tokens)), audio_encoder=dict(
        model_type="encodec", num_filters=4, hidden_size=16, upsampling_ratios=[4, 2], codebook_size=16, codebook_dim=16, target_bandwidths=[60.0]), decoder=dict(
        vocab_size=16, num_codebooks=2, ffn_dim=64, max_position_embeddings=64, pad_token_id=16, bos_token_id=16))
    model.generation_config.update(decoder_start_token_id=16, pad_token_id=16, bos_token_id=16, do_sample=False)
    run("text-to-audio", model, call("a quick fox", generate_kwargs=dict(max_new_tokens=8, do_sample=False)), tokenizer=tokens)
