"""The rows of the page, in its order."""

from evaluation import accuracy, loading, policies, sharing, training
from evaluation.lines import Row
from evaluation.training import FITS, PART

#: Every policy that a node can run.
POLICIES = (
    "staging", "naive", "pytorch", "tfdata", "frequency", "cooperative", "deepio_ordered",
    "deepio_opportunistic", "lbann_dynamic", "lbann_preloading", "sharded", "locality", "minio",
    "partitioned",
)  # fmt: skip

PIZ_DAINT = (
    "Piz Daint (thesis 5.3.1: a 12-core Xeon E5-2690 and a P100 per node, Aries network, Lustre)"
)

ROWS = (
    Row(
        key="hymenoptera",
        item="Thesis, figure 5.9 and table 5.7",
        title="245 images, loaded by more and more nodes",
        printed=f"{PIZ_DAINT}: 245 images of ants and bees, 27 MB, 100 epochs without computing, "
        "HDMLPImageFolder (staging buffer of 2,048 MB, 4,096 MB of RAM) beside PyTorch's "
        "ImageFolder. Seconds are not printed, strong scaling is, up to 64 nodes; HDMLP is faster "
        "for every number of nodes.",
        here="245 JPEGs of 27 MB in folders ants and bees, batches of 8, and caches that hold all "
        "of it; ImageFolder in DataLoader without workers, each beside what `hdmlp simulate "
        "--scaling` predicts, whose rate of preprocessing is that of one node.",
        differs="This has fewer epochs, of which the first, which reads from the source, would "
        "weigh more than among 100: scaling is that of the median of the others. Nodes that do "
        "not get their part of the processors scale less. DataLoader reads from the source in each "
        "epoch, whose rate for each node falls (66, 43, 36 MB/s on 1, 2 and 4); on Piz Daint the "
        "kernel may have cached so few files. The prediction's nodes have equal parts of 245 only "
        "up to rounding: 4 or 3 images at 64 nodes.",
        measure=loading.hymenoptera,
        quick={"nodes": (1, 2), "epochs": 3},
        full={"nodes": (1, 2, 4), "epochs": 6},
    ),
    Row(
        key="imagenet",
        item="Thesis, figure 5.10 and table 5.8",
        title="33 GB, scaled down",
        printed=f"{PIZ_DAINT}: 300,000 images of ImageNet, 33 GB, one epoch without computing; "
        "staging buffer and RAM of a node hold 6,144 MB, 19 % of it. How many times as fast as "
        "ImageFolder HDMLP is, and its strong scaling.",
        here="The same images scaled down in number; a node's memory has 19 % of them.",
        differs="In one epoch each sample is read once, and no cache helps: what HDMLP gains is "
        "reading ahead and cheaper decoding. It reads as fast as the source gives (800 images are "
        "90 MB, and take 5.5, 4.2 and 2.5 s at 16.5, 21.5 and 36.5 MB/s), which bounds every "
        "loader, and ImageFolder on 4 nodes almost does; on Piz Daint it was further below that. "
        "Speed-ups above the number of nodes, as in the thesis (7.192 on 4 nodes), cannot be had "
        "from a source whose rate for each node falls.",
        measure=loading.imagenet,
        quick={"nodes": (1, 2), "samples": 240, "turns": 1},
        full={"nodes": (1, 2, 4), "samples": 800, "turns": 2},
    ),
    Row(
        key="policies",
        item="Thesis, figure 5.10 by policy",
        title="the same dataset under each policy",
        printed="No numbers of measurements: the thesis simulates its policies (tables 5.1 to "
        "5.4, which `make tables` has), and measures its own alone.",
        here="`hdmlp compare` of the scaled-down dataset with a node's memory for 19 % of it, "
        "encoded samples, no computing; beside each runtime is the simulator's.",
        differs="Nodes have no control groups here, and share the processors; nothing is decoded.",
        measure=policies.imagenet,
        quick={"nodes": (2,), "samples": 240, "epochs": 2},
        full={"nodes": (1, 2, 4), "samples": 480, "epochs": 3},
    ),
    Row(
        key="stalls",
        item="Thesis, figures 5.11 to 5.14",
        title="stalls of training with ResNet-50 and SqueezeNet",
        printed=f"{PIZ_DAINT}: 3 epochs, batches of 128 per node, staging buffer of 4,096 MB and "
        "20,480 MB of RAM. ResNet-50 on 11 GB (figure 5.11): the median stall is up to 1,132 times "
        "lower than DataLoader's, and 36 times than that of 4 workers; from 4 nodes on I/O is "
        "hidden. SqueezeNet (5.12): lower in all runs, no number. ResNet-50 on 138 GB and up to "
        "32 nodes (5.13): 2,924 and 44 times. Figure 5.14, the longest stall of an iteration on "
        "256 nodes, prints no number.",
        here="The same with batches of 16 per node; the rows 10 % have memory for all of the "
        "dataset, as 11 GB had, and ResNet-50 has memory for 18 % on each node, as of 138 GB. "
        "Stalls are the medians of nodes, summed over all epochs; the longest stall of a step "
        "stands for figure 5.14.",
        differs="A factor is DataLoader's stall to HDMLP's, whose stall consists of the first "
        "batches of a short run here: the less there is left of it, the greater the factor, and "
        "runs are hundreds of times shorter than the thesis's.",
        measure=training.stalls,
        quick={
            "nodes": (2,),
            "samples": 128,
            "epochs": 2,
            "networks": {
                "ResNet-50, 10 %": ("ResNet-50", FITS),
                "SqueezeNet, 10 %": ("SqueezeNet", FITS),
            },
        },
        full={
            "nodes": (1, 4),
            "samples": 384,
            "epochs": 3,
            "networks": {
                "ResNet-50, 10 %": ("ResNet-50", FITS),
                "SqueezeNet, 10 %": ("SqueezeNet", FITS),
                "ResNet-50": ("ResNet-50", PART),
            },
        },
    ),
    Row(
        key="loaders",
        item="The paper, figures 9 to 11",
        title="HDMLP, PyTorch, DALI and tf.data",
        printed="Piz Daint, batches of 128 per worker, four threads: the stall time of SqueezeNet "
        "on 100 classes of ImageNet with up to 8 workers (figure 9), of ResNet-50 on ImageNet "
        "with up to 32 (figure 10), and the time of its training (figure 11). No numbers are "
        "printed; the text says that HDMLP significantly outperforms the others, and that tf.data "
        "is several times faster than PyTorch with ResNet-50. DALI is not in the figures.",
        here="Batches of 16 per node. Figure 9: SqueezeNet, memory for all of the dataset on each "
        "node; figures 10 and 11: ResNet-50, memory for 18 % on each. An epoch's time is the "
        "training of figure 11, its stall that of figures 9 and 10; medians and ranges over the "
        "later epochs.",
        differs="tf.data shuffles 16 TFRecord files and a buffer of 1,000 samples, here all of a "
        "node's, so that its order is better than the paper's; HDMLP and DataLoader have the same "
        "order. DALI preprocesses on the processor.",
        measure=training.loaders,
        quick={
            "nodes": (2,),
            "samples": 128,
            "epochs": 3,
            "networks": {"figure 9": ("SqueezeNet", FITS)},
        },
        full={
            "nodes": (4,),
            "samples": 384,
            "epochs": 5,
            "networks": {
                "figure 9": ("SqueezeNet", FITS),
                "figures 10, 11": ("ResNet-50", PART),
            },
        },
    ),
    Row(
        key="locality",
        item="Yang and Cong, figures 9 and 12",
        title="collective loading and training by nodes",
        printed="Lassen, four V100 per node: the time to load UCF101-RGB on all nodes (figure 9), "
        "and an epoch of ResNet-50 on ImageNet (figure 12), with the regular and the "
        "locality-aware loader, up to 256 nodes. The text says that loading is more than 30 times "
        "as fast on 256 nodes with 1,024 learners; the curves have no numbers.",
        here="`hdmlp compare`: encoded JPEGs, caches that together hold the dataset, without "
        "computing (figure 9) and with the steps of ResNet-50 on four V100 per node, 2,754 "
        "images/s divided by four (figure 12); epochs after the first, which fills the caches.",
        differs="Nothing is decoded, and nodes share this machine's memory and processors, so that "
        "full caches are far faster than the source: figure 9 has a greater factor on few nodes "
        "than the paper on 256, and figure 12 the one that computing leaves of it. "
        "`hdmlp simulate --scaling` has as many nodes as the paper.",
        measure=policies.locality,
        quick={"nodes": (2,), "samples": 240, "epochs": 3, "network": "ResNet-50, four V100"},
        full={"nodes": (2, 4), "samples": 480, "epochs": 4, "network": "ResNet-50, four V100"},
    ),
    Row(
        key="sharing",
        item="CoorDL, figure 9e",
        title="jobs times ranks that share what is prepared",
        printed="Eight V100, 24 cores: AlexNet on OpenImages as 8 jobs of 1 GPU, 4 of 2, 2 of 4, "
        "and 1 of 8, DALI beside CoorDL; the figure prints no numbers. With one job the benefit "
        "is the cache's, with several it is that of coordinated preparation.",
        here="As many jobs and ranks of one node, batches of 16, images in memory, no computing; "
        "HDMLP's jobs as a group (`share`), and DataLoader without workers. Rates are those of one "
        "job, over all epochs.",
        differs="All is in memory, so that one job gains nothing by sharing; 8 processes have 2 "
        "processors here, and no control group each. The images of all epochs take HDMLP less than "
        "a second, and some are prepared before the first is asked for: its factors are rough.",
        measure=sharing.jobs,
        quick={"shapes": ((4, 1), (1, 4)), "samples": 240, "epochs": 2},
        full={"shapes": ((8, 1), (4, 2), (2, 4), (1, 8)), "samples": 240, "epochs": 3},
    ),
    Row(
        key="accuracy",
        item="Thesis 5.3.4 and 5.4",
        title="accuracy by policy",
        printed="There are no significant differences in validation accuracy among the data "
        "loaders (thesis 5.3.4); HDMLP does not impact accuracy, because it does not change the "
        "batches (5.4). No numbers are printed. Yang and Cong print 76.67, 75.33 and 68.69 % for "
        "the regular loader and 76.81, 75.12 and 69.54 % for the locality-aware one with global "
        "batches of 8,192, 16,384 and 32,768.",
        here="A network of two convolutions in DistributedDataParallel on 2 nodes, batches of 16 "
        "on each, learns the direction of stripes under noise; accuracy on 400 images that were "
        "not trained on, mean and standard deviation over seeds. Each policy trains with the same "
        "seeds.",
        differs="A small network and a small dataset, on which a seed matters more than a policy, "
        "`sharded` excepted. Policies that keep the order have exactly the same accuracy. With "
        "`sharded`, nodes train on contiguous parts of the list, which is sorted by class: each "
        "has half of the classes, and statistics of batch norm that are not the other's.",
        measure=accuracy.policies,
        quick={
            "nodes": 2,
            "samples": 400,
            "epochs": 2,
            "seeds": 2,
            "names": ("cooperative", "deepio_opportunistic"),
        },
        full={"nodes": 2, "samples": 1200, "epochs": 6, "seeds": 3, "names": POLICIES},
    ),
)
