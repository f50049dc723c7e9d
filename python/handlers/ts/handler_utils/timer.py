"""Time of a handler's steps."""

import functools
import time


def timed(func):
    """Add the time of each call of a method to the metrics."""

    @functools.wraps(func)
    def wrap(self, *args, **kwargs):
        begin = time.time()
        result = func(self, *args, **kwargs)
        context = getattr(self, "context", None)
        config = (getattr(context, "model_yaml_config", None) or {}).get("handler", {})
        if context is not None and config.get("profile", False):
            name = f"ts_handler_{func.__name__}"
            context.metrics.add_time(name, (time.time() - begin) * 1000)
        return result

    return wrap
