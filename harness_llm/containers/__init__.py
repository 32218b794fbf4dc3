"""Build and start the two containers, and run the stages of a submission in them.

Not Docker Compose: podman and Docker without plugins lack it; device groups, user and mounts depend on the machine; a
stage needs its exit code, one forwarded interrupt and an end with its parent.
"""
