"""How far counting words gets on the built-in corpus: a logistic regression over unigrams. Seconds on one core.

python benchmarks/demo_bag_of_words.py
"""

from __future__ import annotations

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tfbert.tasks.texts.demo import demo_data


def bag_of_words_accuracy() -> tuple[float, float]:
    """Accuracy on the training and on the validation set."""
    train, validation = demo_data()
    model = make_pipeline(CountVectorizer(), LogisticRegression(solver="liblinear"))
    model.fit(train.text, train.labels)
    return model.score(train.text, train.labels), model.score(validation.text, validation.labels)


def main() -> None:
    """Prints both accuracies."""
    on_train, on_validation = bag_of_words_accuracy()
    print(f"bag of words: train accuracy {on_train:.4f}, validation accuracy {on_validation:.4f}")


if __name__ == "__main__":
    main()
