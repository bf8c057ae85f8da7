"""Workers that stay, behind sockets: a driver, a tree of workers, and rounds between them."""
