"""What a candidate must show before it gets requests, and while it has a share of them."""
