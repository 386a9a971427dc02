"""One parser per family of architectures: a configuration in, a `ModelShape` out."""
