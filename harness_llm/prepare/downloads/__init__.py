"""Downloads from MLCommons' storage and Hugging Face."""
