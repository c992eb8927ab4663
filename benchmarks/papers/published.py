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
# Table 3, objective and accuracy: data set and alpha -> of LIBSVM and of Saddle-SVC
SADDLE_TABLE_3_BOTH = {
    ("a9a", 0.1): ("6e-12, 0.35", "6e-4, 0.69"),
    ("a9a", 0.3): ("6e-13, 0.36", "7e-4, 0.69"),
    ("a9a", 0.5): ("6e-13, 0.71", "3e-4, 0.70"),
    ("phishing", 0.1): ("6e-11, 0.89", "3e-4, 0.82"),
    ("phishing", 0.3): ("0.002, 0.93", "0.002, 0.93"),
    ("phishing", 0.5): ("0.01, 0.92", "0.01, 0.93"),
    ("ijcnn1", 0.1): ("2e-12, 0.17", "0.0039, 0.73"),
    ("ijcnn1", 0.3): ("6e-13, 0.17", "0.002, 0.47"),
    ("ijcnn1", 0.5): ("3e-13, 0.80", "0.0004, 0.31"),
}
# Table 4.
SADDLE_TABLE_4: Numbers = {
    "skin-nonskin": {"nu-saddle": (40.0, 93.1), "liblinear": (654, 91.3)},
    "filled10": {"nu-saddle": (393, 80.4), "liblinear": (28.2, 83.0)},
    "filled50": {"nu-saddle": (369, 84.4), "liblinear": (214, 84.3)},
    "filled90": {"nu-saddle": (363, 82.5), "liblinear": (537, 82.8)},
}

# --- tables that are shown as printed ------------------------------------------------------------
# page -> title, head and rows: of methods, data sets or figures that nothing here is beside

AsPrinted = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]

AS_PRINTED: dict[str, tuple[AsPrinted, ...]] = {
    "dcsvm": (
        (
            "Table 5: seconds of DC-SVM by level, covtype",
            ("level", "4", "3", "2", "1", "0"),
            (
                ("clustering", "43.2", "42.5", "40.8", "38.1", "36.5"),
                ("training", "159.4", "439.7", "1422.8", "3135.5", "7614.0"),
            ),
        ),
        (
            "Table 4: hours for a whole grid of C and gamma",
            ("data set", "DC-SVM (early)", "DC-SVM", "LIBSVM"),
            (
                ("ijcnn1", "0.27", "2.3", "6.4"),
                ("webspam", "5.6", "103", "343"),
                ("covtype", "10.3", "115", "881"),
                ("census", "1.5", "33.6", "127"),
            ),
        ),
    ),
    "pbm": (
        (
            "Table 2: seconds and accuracy (%)",
            (
                *("data set, loss", "PBM, first step", "PBM, error 1e-3", "P-packSGD"),
                *("PSVM, n^0.5", "PSVM, n^0.6", "DC-SVM, error 1e-3"),
            ),
            (
                (
                    *("webspam, hinge", "16, 99.07", "360, 99.26", "1478, 98.99"),
                    *("773, 75.79", "2304, 88.68", "8742, 99.26"),
                ),
                (
                    *("covtype, hinge", "14, 96.05", "772, 96.13", "1349, 92.67"),
                    *("286, 76.00", "7071, 81.53", "10457, 96.13"),
                ),
                (
                    *("cifar, hinge", "15, 85.91", "540, 89.72", "1233, 88.31"),
                    *("41, 79.89", "1474, 69.73", "13006, 89.72"),
                ),
                ("mnist8m, hinge", "321, 98.94", "8112, 99.45", "2414, 98.60", "-", "-", "-"),
                ("kdda, hinge", "1832, 85.51", "12700, 86.31", "-", "-", "-", "-"),
                ("webspam, logistic", "1679, 92.01", "2131, 99.07", "4417, 98.96", "-", "-", "-"),
                ("cifar, logistic", "471, 83.37", "758, 88.14", "2115, 87.07", "-", "-", "-"),
            ),
        ),
    ),
    "sodm": (
        (
            "Table 3, linear kernel: accuracy, and seconds",
            ("data set", "ODM", "Ca-ODM", "DiP-ODM"),
            (
                ("gisette", ".972", ".953, 82.35", ".966, 74.36"),
                ("svmguide1", ".964", ".863, 35.27", ".898, 40.52"),
                ("phishing", ".937", ".894, 33.84", ".921, 38.60"),
                ("a7a", ".850", ".795, 47.59", ".831, 59.17"),
                ("cod-rna", ".938", ".882, 435.19", ".894, 434.77"),
                ("ijcnn1", ".913", ".896, 228.43", ".903, 208.81"),
                ("skin-nonskin", ".917", ".796, 158.12", ".903, 256.78"),
                ("SUSY", ".774", ".734, 3790.37", ".738, 3829.23"),
            ),
        ),
    ),
    "saddle": (
        (
            "Table 1: objectives",
            ("data set", "Saddle-SVC", "Gilbert"),
            (
                ("iris", "0.835", "0.835"),
                ("mushrooms", "0.516", "0.517"),
                ("synthetic, d = 8", "0.395", "0.397"),
                ("synthetic, d = 32", "0.468", "0.470"),
                ("synthetic, d = 128", "0.436", "0.438"),
                ("synthetic, d = 512", "0.496", "0.498"),
            ),
        ),
    ),
}
