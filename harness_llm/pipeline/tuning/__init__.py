"""Search of the LoadGen target and of engine settings by trials on a warm replica pool."""
