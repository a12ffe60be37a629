"""The study `graphs`: does a second graph at a characteristic scale help, and is it that scale?"""

from intarsia.studies.graphs.graph_cells import NAME, SCALES, cells, measure
from intarsia.studies.graphs.graph_claims import verdict
from intarsia.studies.graphs.graph_tables import figures, tables
from intarsia.studies.study import Study, register

register(
    Study(
        NAME,
        "Renormalised graphs: networks that see a graph at two scales",
        "Node classifiers see a graph (SB), the same graph twice (MB), the graph rewired at its "
        "published scale tau* (SR), or both (MR), under the protocol of Caso et al. 2025: training "
        "sees only the edges between training nodes. Does the second graph help, and is it tau* "
        "that helps? Controls replace the second graph: other times, random times, hops, as many "
        "random edges, the peak of the heat capacity, personalised PageRank. The honest protocol "
        "trains on all edges, over random splits stratified by class, and chooses dropout, "
        "learning rate and weight decay on validation nodes for each network and seed. Each cell "
        "holds the networks of all seeds, trained in one stack. The paper's ranges of random "
        "scales are not available: ours are decades.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="networks that see both graphs beat those that see one graph twice, and no random "
        "scale does as well as tau*",
    )
)
