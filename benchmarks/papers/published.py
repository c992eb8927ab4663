"""What the papers print: data set -> method -> (seconds, accuracy in percent); None: not given."""

from __future__ import annotations

Numbers = dict[str, dict[str, tuple[float | None, float | None]]]

# Tables 2 and 3 of the DC-SVM paper. LLSVM (rank 3,000) stands beside Nystroem here, FastFood
# beside random features, mnist8m beside mnist.
DCSVM_TABLE_2: Numbers = {
    "ijcnn1": {
        "early-64": (12, 98.35),
        "dc": (41, 98.69),
        "libsvm": (115, 98.69),
        "libsvm-sample": (6, 98.24),
        "cascade": (17.1, 98.08),
        "nystroem": (38, 98.23),
        "random-features": (87, 95.95),
    },
    "covtype": {
        "early-64": (672, 96.12),
        "dc": (11414, 96.15),
        "libsvm": (83631, 96.15),
        "libsvm-sample": (5330, 92.46),
        "cascade": (5600, 89.51),
        "nystroem": (4451, 84.21),
        "random-features": (8550, 80.1),
    },
    "census": {
        "early-64": (261, 94.9),
        "dc": (1051, 94.2),
        "libsvm": (2920, 94.2),
        "libsvm-sample": (641, 93.2),
        "cascade": (849, 93.0),
        "nystroem": (1212, 92.8),
        "random-features": (851, 91.6),
    },
    "kddcup99": {
        "early-64": (470, 92.61),
        "dc": (2739, 92.59),
        "libsvm": (6580, 92.51),
        "libsvm-sample": (1627, 91.90),
        "cascade": (1155, 91.2),
        "nystroem": (3015, 91.5),
        "random-features": (2191, 91.6),
    },
    "mnist": {
        "early-64": (10287, 99.85),
        "dc": (71823, 99.93),
        "libsvm": (298900, 99.91),
        "libsvm-sample": (31526, 99.21),
        "cascade": (64151, 98.3),
        "nystroem": (65121, 97.64),
        "random-features": (14917, 96.5),
    },
}
# Table 2 of the PBM paper: 32 machines of one thread each.
PBM_TABLE_2: Numbers = {
    "covtype": {
        "first": (14, 96.05),
        "rounds": (772, 96.13),
    },
}
DCSVM_ROWS = {
    "ijcnn1": 49_990,
    "covtype": 464_810,
    "census": 159_619,
    "kddcup99": 4_898_431,
    "mnist": 8_000_000,
}
DCSVM_TABLE_6: Numbers = {
    "ijcnn1": {
        "early-256": (None, 98.16),
        "bagging-256": (None, 91.81),
        "early-64": (None, 98.35),
        "bagging-64": (None, 95.44),
        "early-16": (None, 98.46),
        "bagging-16": (None, 98.24),
    },
    "covtype": {
        "early-256": (None, 96.12),
        "bagging-256": (None, 83.41),
        "early-64": (None, 96.15),
        "bagging-64": (None, 88.54),
        "early-16": (None, 96.16),
        "bagging-16": (None, 91.81),
    },
}

# Table 2 of the SODM paper. It gives no seconds for ODM, which did not finish within 48 hours on
# the larger sets.
SODM_TABLE_2: Numbers = {
    "svmguide1": {
        "odm-whole": (None, 97.0),
        "odm-cascade": (38.90, 87.2),
        "odm-dip": (35.25, 90.3),
        "odm-dc": (50.11, 94.3),
        "odm-sodm": (28.74, 94.4),
    },
    "phishing": {
        "odm-whole": (None, 94.1),
        "odm-cascade": (49.60, 88.0),
        "odm-dip": (52.61, 90.1),
        "odm-dc": (59.47, 93.6),
        "odm-sodm": (25.22, 93.8),
    },
    "a7a": {
        "odm-whole": (None, 88.2),
        "odm-cascade": (68.36, 82.4),
        "odm-dip": (61.24, 81.3),
        "odm-dc": (106.51, 81.5),
        "odm-sodm": (32.67, 83.8),
    },
    "ijcnn1": {
        "odm-cascade": (185.20, 88.9),
        "odm-dip": (182.71, 89.3),
        "odm-dc": (226.26, 91.5),
        "odm-sodm": (40.32, 92.7),
    },
    "skin-nonskin": {
        "odm-cascade": (338.73, 80.6),
        "odm-dip": (437.20, 83.0),
        "odm-dc": (407.46, 96.2),
        "odm-sodm": (283.36, 95.6),
    },
    "susy": {
        "odm-cascade": (4280.23, 73.3),
        "odm-dip": (5678.66, 74.4),
        "odm-dc": (7009.36, 74.7),
        "odm-sodm": (1004.33, 76.0),
    },
}
# Table 3: its column ODM. Those of SVRG and CSVRG are in a figure only.
SODM_TABLE_3: Numbers = {
    "svmguide1": {"linear-newton": (None, 96.4)},
    "phishing": {"linear-newton": (None, 93.7)},
    "a7a": {"linear-newton": (None, 85.0)},
    "ijcnn1": {"linear-newton": (None, 91.3)},
    "skin-nonskin": {"linear-newton": (None, 91.7)},
    "susy": {"linear-newton": (None, 77.4)},
}
SODM_TABLE_4: Numbers = {
    "svmguide1": {
        "svm-cascade": (49.20, 90.4),
        "svm-dip": (33.20, 89.5),
        "svm-dc": (37.63, 95.2),
        "svm-sodm": (20.33, 90.2),
    },
    "phishing": {
        "svm-cascade": (43.85, 91.0),
        "svm-dip": (55.02, 90.2),
        "svm-dc": (42.53, 92.8),
        "svm-sodm": (30.70, 92.9),
    },
    "a7a": {
        "svm-cascade": (59.40, 81.7),
        "svm-dip": (58.92, 81.5),
        "svm-dc": (97.99, 81.8),
        "svm-sodm": (40.54, 81.0),
    },
    "ijcnn1": {
        "svm-cascade": (150.11, 80.3),
        "svm-dip": (156.27, 82.4),
        "svm-dc": (266.95, 92.0),
        "svm-sodm": (105.11, 80.3),
    },
    "skin-nonskin": {
        "svm-cascade": (299.96, 81.1),
        "svm-dip": (343.82, 85.5),
        "svm-dc": (420.51, 95.9),
        "svm-sodm": (320.05, 84.8),
    },
    "susy": {
        "svm-cascade": (4153.10, 72.0),
        "svm-dip": (5377.99, 75.2),
        "svm-dc": (7520.00, 75.8),
        "svm-sodm": (3920.28, 72.0),
    },
}
SODM_ROWS = {  # of which 80 % are fitted
    "svmguide1": 7_089,
    "phishing": 11_055,
    "a7a": 32_561,
    "ijcnn1": 141_691,
    "skin-nonskin": 245_057,
    "susy": 5_000_000,
}

# Table 1 of the Saddle-SVC paper: seconds and |z|, the distance of the hulls (its rows are scaled
# otherwise, so that only seconds compare).
SADDLE_TABLE_1: Numbers = {
    "iris": {"hard-published-saddle": (0.152, None), "hard-published-gilbert": (0.0005, None)},
    "mushrooms": {"hard-published-saddle": (11.2, None), "hard-published-gilbert": (12.5, None)},
    "synthetic8": {"hard-published-saddle": (9.33, None), "hard-published-gilbert": (1.52, None)},
    "synthetic32": {"hard-published-saddle": (28.8, None), "hard-published-gilbert": (10.1, None)},
    "synthetic128": {"hard-published-saddle": (64.0, None), "hard-published-gilbert": (152, None)},
    "synthetic512": {"hard-published-saddle": (189, None), "hard-published-gilbert": (2327, None)},
}
# Table 3: LIBSVM's accuracy.
SADDLE_TABLE_3: Numbers = {
    "a9a": {"libsvm-0.1": (None, 35), "libsvm-0.3": (None, 36), "libsvm-0.5": (None, 71)},
    "phishing": {"libsvm-0.1": (None, 89), "libsvm-0.3": (None, 93), "libsvm-0.5": (None, 92)},
    "ijcnn1": {"libsvm-0.1": (None, 17), "libsvm-0.3": (None, 17), "libsvm-0.5": (None, 80)},
}
# Table 4.
SADDLE_TABLE_4: Numbers = {
    "skin-nonskin": {"nu-saddle": (40.0, 93.1), "liblinear": (654, 91.3)},
    "filled10": {"nu-saddle": (393, 80.4), "liblinear": (28.2, 83.0)},
    "filled50": {"nu-saddle": (369, 84.4), "liblinear": (214, 84.3)},
    "filled90": {"nu-saddle": (363, 82.5), "liblinear": (537, 82.8)},
}
