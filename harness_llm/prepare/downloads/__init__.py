"""Downloads from MLCommons' R2 storage and Hugging Face.

Not huggingface_hub alone: it does not read R2, and snapshot_download (2.4) verifies no checksum and does not resume a
file after its process ended.
"""
