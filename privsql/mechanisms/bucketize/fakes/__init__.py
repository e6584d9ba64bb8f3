"""Values in every bucket that nobody there has: how often each is listed, which are fake, what that makes certain."""
