"""How canonical values are read and written: two encoders, their decoders, registered types."""
