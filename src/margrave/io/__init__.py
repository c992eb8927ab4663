"""Reading and writing files.

libsvm.py        LIBSVM's text format
libsvm_model.py  model files of LIBSVM and LIBLINEAR
model_file.py    margrave's model files: arrays and JSON
files.py         compressed files, atomic replacement
"""

from margrave.io.libsvm import LibsvmRows, load_libsvm, read_libsvm, save_libsvm

__all__ = ["LibsvmRows", "load_libsvm", "read_libsvm", "save_libsvm"]
