"""Ctrl-C while a model is being fitted."""

import os
import signal
import threading
import time


def press(model, data, delay):
    """Seconds from a signal, sent after a delay, to the KeyboardInterrupt that it must become."""
    pressed = []

    def later():
        time.sleep(delay)
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=later, daemon=True)
    try:
        thread.start()
        model.fit(*data)
        thread.join(100.0)  # the fit was faster
        time.sleep(10.0)
    except KeyboardInterrupt:
        late = time.perf_counter() - pressed[0]
        thread.join(10.0)
        return late
    raise AssertionError("no signal came")
