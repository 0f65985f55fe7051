"""The log on Apache Kafka: the client library behind one contract, where a log lies, its writer."""
