"""Files: LIBSVM's text, model files, and writing that leaves the old file or the new one."""

from margrave.io.libsvm import LibsvmRows, load_libsvm, read_libsvm, save_libsvm

__all__ = ["LibsvmRows", "load_libsvm", "read_libsvm", "save_libsvm"]
