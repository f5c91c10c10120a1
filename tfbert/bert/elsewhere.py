"""Names of transformers 4 that are not in tfbert, each with what to write instead. Imports nothing heavy."""

_TOKENIZERS = 'Write `from transformers import {name}` and tokenizer(texts, padding=True, return_tensors="np")'
_COLLATORS = (
    'Write `from transformers import {name}` and {name}(..., return_tensors="np"); model.prepare_tf_dataset(dataset, '
    "tokenizer=tokenizer) pads without one"
)
_MODELS = "Models of the BERT architecture alone are here: take TFAutoModelFor..., or TFBertFor..."

INSTEAD = {
    "AutoTokenizer": _TOKENIZERS,
    "BertTokenizerFast": _TOKENIZERS,
    "PreTrainedTokenizerFast": _TOKENIZERS,
    "AutoConfig": "Write BertConfig.from_pretrained(name)",
    "DataCollatorWithPadding": _COLLATORS,
    "DataCollatorForTokenClassification": _COLLATORS,
    "DataCollatorForLanguageModeling": _COLLATORS,
    "DataCollatorForMultipleChoice": _COLLATORS,
    "DefaultDataCollator": _COLLATORS,
    "TFTrainer": "Write model.compile(...) and model.fit(...), with tfbert.FineTuner(model) on several devices",
    "TFTrainingArguments": "Pass its values to compile, fit and tfbert.FineTuner(model, ...)",
    "glue_convert_examples_to_features": "Write dict(tokenizer(texts, pairs, padding=True, return_tensors='np'))",
    "glue_processors": "Read the files with pandas, or call tfbert.finetune(train='train.tsv')",
    "squad_convert_examples_to_features": "Call tfbert.finetune(train='train.json', task='question_answering')",
    "KerasMetricCallback": "Pass metrics=[...] to compile, or a keras.callbacks.Callback that calls model.predict",
    "PushToHubCallback": "Call model.push_to_hub(name) after fit",
    "AdamWeightDecay": "Write tfbert.AdamW(rate, weight_decay, no_decay=('LayerNorm', 'bias'))",
    "WarmUp": "Write tfbert.WarmupSchedule(peak=..., schedule='linear', warmup_steps=..., total_steps=...)",
    "GradientAccumulator": "Write tfbert.FineTuner(model, gradient_accumulation_steps=...)",
    "TFBertMainLayer": "Take `model.bert` of a TFBertModel",
    "TFBertPreTrainedModel": _MODELS,
    "TFPreTrainedModel": _MODELS,
    "TFBertLMHeadModel": "There is no decoder; take TFBertForMaskedLM",
    "TFBertForNextSentencePrediction": "Take TFBertForPreTraining, whose output has seq_relationship_logits",
    "TFBertEmbeddings": "Take `model.bert.embeddings` of a TFBertModel",
    "TFDistilBertModel": _MODELS,
    "TFDistilBertForSequenceClassification": _MODELS,
    "TFRobertaModel": _MODELS,
    "TFRobertaForSequenceClassification": _MODELS,
    "pipeline": "Write tfbert.load(directory)(texts)",
    "set_seed": "Write keras.utils.set_random_seed(seed)",
}


def error_for(name: str) -> ImportError:
    """What `from tfbert import NAME` raises for one of these. (The line of an AttributeError would be lost.)"""
    todo = INSTEAD[name].replace("{name}", name)
    return ImportError(f"{name} of transformers is not in tfbert. Received: tfbert.{name}. {todo}.")
