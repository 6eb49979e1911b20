"""What all tests share: no test fails because the machine was slow."""

from hypothesis import settings

settings.register_profile("anubis", deadline=None, print_blob=True)
settings.load_profile("anubis")
