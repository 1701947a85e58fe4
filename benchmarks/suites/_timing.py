"""How often and how long calls are timed."""


class Timed:
    """Samples of one call each, spread over rounds; a disturbance lasts longer than a round."""

    rounds = 2
    warmup_time = 0.1
    repeat = (5, 40, 0.4)  # at least, at most, and seconds
