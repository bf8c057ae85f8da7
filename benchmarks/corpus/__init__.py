"""Problems of many kinds."""
