"""Reading and writing files: LIBSVM's text format, model files, atomic replacement."""

from margrave.io.libsvm import LibsvmRows, load_libsvm, read_libsvm, save_libsvm

__all__ = ["LibsvmRows", "load_libsvm", "read_libsvm", "save_libsvm"]
