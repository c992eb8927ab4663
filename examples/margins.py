"""What a margin distribution machine does differently, in three pictures.

A support vector machine cares for its smallest margins and lets the others go where they like. The
ODM draws all of them into a band around one. Run it with

    python examples/margins.py
"""

from __future__ import annotations

from pathlib import Path

from sklearn.datasets import make_moons

from margrave import SVC, ODMClassifier, plots

OUTPUT = Path("demo_output")


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")  # files only: works without a screen
    X, y = make_moons(6000, noise=0.25, random_state=0)
    X_test, y_test = X[3000:], y[3000:]
    svm = SVC(C=100.0, gamma=2.0).fit(X[:3000], y[:3000])
    odm = ODMClassifier(lam=1000.0, gamma=2.0, upsilon=0.8, theta=0.2).fit(X[:3000], y[:3000])
    for model in (svm, odm):
        name, accuracy = type(model).__name__, 100 * model.score(X_test, y_test)
        print(f"{name:14s} gap {model.gap_:.1e}  accuracy on new rows {accuracy:.2f} %")
    share = 100 * odm.certified(X_test).mean()
    print(f"{share:.1f} % of the ODM's labels are final: no further training could change them")

    pictures = {
        "margins.png": plots.margin_distribution([svm, odm], X_test, y_test),
        "convergence.png": plots.convergence([svm, odm]),
        "odm_boundary.png": plots.decision_boundary(odm, X_test, y_test),
    }
    OUTPUT.mkdir(exist_ok=True)
    for name, ax in pictures.items():
        ax.figure.savefig(OUTPUT / name, dpi=150)
        print(f"wrote {OUTPUT / name}")


if __name__ == "__main__":
    main()
