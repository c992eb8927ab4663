"""Train an SVC on 100,000 noisy rows, compare it with scikit-learn's, and draw what it learned.

Two spirals, blurred the more the farther they reach. margrave trains on all rows; scikit-learn's
SVC on a subsample that it finishes in about ten seconds. The same as ``margrave demo``.
"""

from margrave.cli.demo import main

if __name__ == "__main__":
    main()
