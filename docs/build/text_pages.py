"""The page on texts: modules on a sentence encoder's features; adding, removing, abstaining."""

from pages import Load, page, table


def texts(load: Load) -> str:
    result = load("texts")
    numbers = result["numbers"]

    def shown(key: str) -> str:
        return f"{numbers[key]['mean']:.3f} ({numbers[key]['sd']:.3f})"

    def accuracies(**labels: str) -> str:
        rows = [[label, shown(key)] for key, label in labels.items()]
        return table("classifier|accuracy on test texts", rows)

    late = " and ".join(f"`{name}`" for name in result["late"])
    bits = "bit for bit the same as before" if result["same_bits"] else "NOT the same as before"
    return page(
        "Texts",
        [result],
        "How well do modules on the features of a sentence encoder classify texts, and what "
        f"changes if a topic is added or removed? Reuters news of {result['classes']} topics, "
        f"{result['train']:,} training and {result['test']:,} test texts, each as "
        f"{result['features']} features of MiniLM, computed once. Mean (standard deviation) over "
        f"{result['seeds']} seeds; the seed also determines which texts are used for validation. "
        "All settings are defaults: modules are trained as by `ia.train(data)`.",
        accuracies(
            modules="one module per topic, joined",
            joint="one network of the same kind on all topics",
            logistic="logistic regression on the same features",
        ),
        f"Training all modules took {numbers['seconds']['mean']:.1f} s.",
        "## Adding and removing a topic",
        f"In turn, {late} are added later: the estimator is fitted without the topic, and "
        "`add_class` then adds it. No other module is retrained.",
        accuracies(
            at_once="all topics fitted at once",
            added="one topic added later",
            added_own="the same, on the added topic alone",
        ),
        "When the topic is removed from the joined modules, accuracy on all other topics goes "
        f"from {shown('others_before')} to {shown('others_without')}; when it is added back, the "
        f"logits are {bits}.",
        "## Topics that no module knows",
        f"Modules of all topics but one, in turn {late}. At the threshold at which 95% of the "
        f"validation texts are answered, a fraction of {shown('answered')} of the test texts of "
        f"known topics is answered, and {shown('unanswered_unknown')} of those of the unknown "
        "topic is left unanswered. Entropy separates known from unknown texts with an AUROC of "
        f"{shown('auroc')}.",
    )
