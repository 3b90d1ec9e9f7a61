"""A registry for the stack's images, from which its nodes alone may pull."""
