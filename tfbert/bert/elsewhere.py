"""Names of transformers 4 that are not in tfbert, each with what to write instead. Imports nothing heavy."""

import difflib
import re
from collections.abc import Collection

_THEIRS = "Write `from transformers import {name}`"
_HERE = "(Bert|DistilBert|Electra|Roberta|XLMRoberta|Camembert|ModernBert)"
_INSTEAD = {
    "TFBertTokenizer": "Write tfbert.BertTokenizer(vocab), which tokenizes in graphs",
    r"\w*Tokenizer(Fast)?|BatchEncoding": _THEIRS + ' and tokenizer(texts, padding=True, return_tensors="np")',
    "AutoConfig": "Write BertConfig.from_pretrained(name)",
    r"DefaultDataCollator|DataCollator\w*": _THEIRS
    + ' and {name}(..., return_tensors="np"); model.prepare_tf_dataset(dataset, tokenizer=tokenizer) pads without one',
    "TFTrainer": "Write model.compile(...) and model.fit(...), with tfbert.FineTuner(model) on several devices",
    "TFTrainingArguments": "Pass its values to compile, fit and tfbert.FineTuner(model, ...)",
    r"glue_convert\w*|InputExample|InputFeatures": "Write dict(tokenizer(texts, pairs, padding=True,"
    " return_tensors='np'))",
    r"glue_\w*": "Read the files with pandas, or call tfbert.finetune(train='train.tsv')",
    r"(?i:squad)\w*": "Call tfbert.finetune(train='train.json', task='question_answering')",
    "KerasMetricCallback": "Pass metrics=[...] to compile, or a keras.callbacks.Callback that calls model.predict",
    "PushToHubCallback": "Call model.push_to_hub(name) after fit",
    "AdamWeightDecay": "Write tfbert.AdamW(rate, weight_decay, no_decay=('LayerNorm', 'bias'))",
    r"WarmUp|get_\w+_schedule\w*": "Write tfbert.WarmupSchedule(peak=..., schedule='linear', warmup_steps=..., "
    "total_steps=...)",
    "GradientAccumulator": "Write tfbert.FineTuner(model, gradient_accumulation_steps=...)",
    f"TF{_HERE}MainLayer": "Take `model.bert` of a TFBertModel, or what it is called in another, as `model.distilbert`",
    f"TF{_HERE}Embeddings": "Take `model.bert.embeddings` of a TFBertModel",
    f"TF{_HERE}(Encoder|Transformer|Layer|Attention|SelfAttention|Intermediate|Output)": "Take `model.bert.encoder` of "
    "a TFBertModel",
    f"TF{_HERE}Pooler": "Take `model.bert.pooler` of a TFBertModel",
    f"TF{_HERE}?PreTrainedModel": "Derive from TFBertModel, or from TFBertFor... of the task",
    "TFAutoModelWithLMHead": "Take TFAutoModelForMaskedLM",
    r"TF\w+(LMHead|ForCausalLM|ForSeq2SeqLM|ForConditionalGeneration)\w*": "There is no decoder; "
    "take TFBertForMaskedLM",
    r"TF\w+ForNextSentencePrediction": "Take TFBertForPreTraining, whose output has seq_relationship_logits",
    r"TF\w+Output\w*": "Take the output's parts by name, such as output.logits",
    r"TFElectraFor(PreTraining|MaskedLM)": "ELECTRA's discriminator is here for tasks, not its pre-training; take "
    "TFElectraModel, or a class of a task",
    r"TF[A-Z]\w*": "These encoders are here: BERT, DistilBERT, ELECTRA, RoBERTa, XLM-R, CamemBERT, ModernBERT; "
    "take TFAutoModelFor..., or the class of one",
    "pipeline": "Write tfbert.load(directory)(texts)",
    "set_seed": "Write keras.utils.set_random_seed(seed)",
    "shape_list": "Write tf.shape(tensor)",
    r"(Auto|Bert)(Model|For|PreTrained)\w*|Trainer|TrainingArguments|HfArgumentParser|is_\w+_available": _THEIRS,
}
"""By patterns of names; the first that fits."""


def error_for(name: str, own: Collection[str]) -> ImportError | None:
    """What `from tfbert import NAME` raises for one of these. (The line of an AttributeError would be lost.)

    Args:
        name: What is not in tfbert.
        own: What is.
    """
    of_here = re.match(f"TF({_HERE}|Auto)", name)
    if of_here and (near := difflib.get_close_matches(name, own, n=1, cutoff=0.95)):
        return ImportError(f"tfbert has no class of this name. Received: tfbert.{name}. Did you mean {near[0]}?")
    for pattern, todo in _INSTEAD.items():
        if re.fullmatch(pattern, name):
            todo = todo.replace("{name}", name)
            return ImportError(f"{name} of transformers is not in tfbert. Received: tfbert.{name}. {todo}.")
    return None
