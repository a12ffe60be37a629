"""The page on texts: modules on a sentence encoder's features, added, removed, abstained from."""

from pages import Load, page, table


def texts(load: Load) -> str:
    result = load("texts")
    numbers = result["numbers"]

    def shown(key: str) -> str:
        return f"{numbers[key]['mean']:.3f} ({numbers[key]['sd']:.3f})"

    def accuracies(**labels: str) -> str:
        rows = [[label, shown(key)] for key, label in labels.items()]
        return table("|accuracy on test texts", rows)

    late = " and ".join(f"`{name}`" for name in result["late"])
    bits = "bit for bit what they were" if result["same_bits"] else "NOT what they were"
    return page(
        "Texts",
        [result],
        f"Reuters news of {result['classes']} topics as sentences: {result['train']:,} to train, "
        f"{result['test']:,} to test, each {result['features']} features of MiniLM, which were "
        f"computed once. Mean (standard deviation) over {result['seeds']} seeds; a seed also cuts "
        "the validation texts. Nothing was set: modules are trained as `ia.train(data)` does.",
        accuracies(
            modules="one module a topic, joined",
            joint="one network of the same kind on all topics",
            logistic="logistic regression on the same features",
        ),
        f"Training all modules took {numbers['seconds']['mean']:.1f} s.",
        "## A topic added, and taken out",
        f"By turns {late} come later: the estimator is fitted without the topic, which `add_class` "
        "then adds. No other module is trained again.",
        accuracies(
            at_once="all topics fitted at once",
            added="one of them added later",
            added_own="the same, on the added topic alone",
        ),
        f"Taken out of the joined modules, the accuracy on all other topics goes from "
        f"{shown('others_before')} to {shown('others_without')}; put back, the logits are {bits}.",
        "## Topics that no module knows",
        f"Modules of all topics but one, by turns {late}. At the threshold that answers 95% of the "
        f"validation texts, {shown('answered')} of the test texts of known topics are answered, "
        f"and {shown('unanswered_unknown')} of those of the unknown topic are left unanswered. "
        f"Entropy tells them apart with an AUROC of {shown('auroc')}.",
    )
