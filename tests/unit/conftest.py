"""What all unit tests share: a property is about what holds, not how quickly; a busy machine is no fault."""

from hypothesis import settings

settings.register_profile("everstep", deadline=None)
settings.load_profile("everstep")
